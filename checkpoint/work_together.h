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

// Collective. If any rank passes an error, throws on every rank the error of the lowest such rank, with that
// rank's number: DirectoryLost if the error is Aborted, otherwise CheckpointError. Throws CommError.
void AgreeOnSuccess(comm::Communicator& comm, const absl::Status& status);

// WorkTogether, below, lets ranks share work that takes minutes, such as reading 100 GB, and wait for each
// other. After every part of its share each rank meets the others in a short collective. So no collective
// waits longer than the slowest rank needs for one part. The communicator's deadline still detects a rank
// that hangs, although the work as a whole has no deadline.

// About how many bytes a rank reads in a part.
inline constexpr int64_t kMeetingBytes = int64_t{64} << 20;

// How many files a rank removes, or checks the sizes of, in a part. A busy file system may need some seconds
// for each.
inline constexpr int kMeetingFiles = 16;

// The progress of one rank with its share.
struct RankProgress {
  bool done = false;
  // In bytes if files are read, in files if they are removed; both 0 if files are written.
  int64_t amount = 0;  // so far
  int64_t total = 0;
};

// The progress of the whole work on the checkpoint `path`: the sums of RankProgress::amount and ::total over
// all ranks.
struct WorkProgress {
  std::string path;
  int64_t done = 0;
  int64_t total = 0;
};

// Called on every rank, on the caller's thread, after each meeting that finds no error. Must be set.
using OnWorkProgress = std::function<void(const WorkProgress& progress)>;

// Collective. Calls `part`, which does a short part of a rank's work on `path`, on every rank until that rank
// is done, and on_progress after each meeting, both on the caller's thread. An exception of `part` counts as
// an error. After an error no rank continues, and all return the same status:
// * InvalidArgument if IsDamage (folder.h) holds for any rank's error;
// * otherwise Unimplemented if any rank's error is Unimplemented;
// * otherwise Unavailable.
// Its message is that of the lowest rank with such an error. For the last two, "rank N: " is put before it
// unless N is 0. Throws CommError.
absl::Status WorkTogether(comm::Communicator& comm, const std::string& path,
                          const std::function<absl::StatusOr<RankProgress>()>& part,
                          const OnWorkProgress& on_progress);

// Collective. Returns the status that WorkTogether would return if each rank had done all its work in one
// part, which returned `status`.
absl::Status AgreeOnReading(comm::Communicator& comm, const absl::Status& status);

// Calls `part` and returns its status, or Internal with what() if it throws: the other ranks wait for this
// one and must learn of an exception, too.
absl::Status StatusOfPart(const std::function<absl::Status()>& part);

}  // namespace tandem::checkpoint
