// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::checkpoint {

// Collective. Returns every rank's text, in the order of ranks, on every rank. Throws CommError.
std::vector<std::string> ExchangeTexts(comm::Communicator& comm, const std::string& text);

// Collective. Returns every rank's text, in the order of ranks, on rank 0, and nothing on the others. Throws
// CommError.
std::vector<std::string> GatherTexts(comm::Communicator& comm, const std::string& text);

// Collective. Returns rank 0's text on every rank; the texts of other ranks are ignored. Throws CommError.
std::string TextOfRankZero(comm::Communicator& comm, const std::string& text);

// Collective. If a rank passes an error, throws the first such rank's error on every rank, with that rank's
// number: DirectoryLost if the error is Aborted, otherwise CheckpointError. Throws CommError.
void AgreeOnSuccess(comm::Communicator& comm, const absl::Status& status);

// Lets ranks share work that takes minutes, such as reading 100 GB, and wait for each other. After every part
// of its share each rank meets the others in a short collective. So no collective waits longer than the
// slowest rank needs for one part, and the communicator's deadline finds a rank that hangs without a limit on
// the whole work.

// How many bytes a rank reads in a part, about.
inline constexpr int64_t kMeetingBytes = int64_t{64} << 20;

// How many files a rank removes, or checks the sizes of, in a part. A busy file system may need
// some seconds for each.
inline constexpr int kMeetingFiles = 16;

// The progress of one rank with its share, or of all ranks together.
struct RankProgress {
  bool done = false;
  // In bytes if files are read, in files if they are removed.
  int64_t amount = 0;  // so far
  int64_t total = 0;
};

// The progress of all ranks together with the checkpoint `path`.
struct WorkProgress {
  std::string path;
  int64_t done = 0;
  int64_t total = 0;
};

// Called on every rank, on the caller's thread, after each meeting.
using OnWorkProgress = std::function<void(const WorkProgress& progress)>;

// Collective. Calls `part`, which does a short part of a rank's work on `path`, on every rank until that rank
// is done, and on_progress after each meeting, both on the caller's thread. An exception of `part` counts as
// an error. After an error no rank continues, and all return the same status: if IsDamage (folder.h) holds
// for an error, InvalidArgument with the first such error; otherwise Unimplemented if a rank's is, or else
// Unavailable, with the first such error and its rank unless that is 0. Throws CommError.
absl::Status WorkTogether(comm::Communicator& comm, const std::string& path,
                          const std::function<absl::StatusOr<RankProgress>()>& part,
                          const OnWorkProgress& on_progress);

// Collective. Returns the status that WorkTogether would return if each rank had done its only part with this
// status.
absl::Status AgreeOnReading(comm::Communicator& comm, const absl::Status& status);

// Calls `part` and returns its status, or Internal with what() if it throws: the other ranks wait for this
// one and must learn of an exception, too.
absl::Status StatusOfPart(const std::function<absl::Status()>& part);

}  // namespace tandem::checkpoint
