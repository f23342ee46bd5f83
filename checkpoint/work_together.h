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

// Collective. If a rank has an error, throws on every rank, with the same text and the number of the first
// such rank: DirectoryLost if its error is Aborted, otherwise CheckpointError. Throws CommError.
void AgreeOnSuccess(comm::Communicator& comm, const absl::Status& status);

// Lets ranks share work that takes minutes, such as reading 100 GB, and wait for each other. Between two
// parts of its share each rank meets the others. So a collective never waits longer than the slowest rank
// needs for one part, however much there is to do, and the communicator's deadline applies to a rank that has
// stopped working, not to one that has not finished.

// How many bytes a rank reads between two meetings.
inline constexpr int64_t kMeetingBytes = int64_t{64} << 20;

// How many files a rank removes, or examines the sizes of, between two meetings. A busy file system may take
// some seconds for each.
inline constexpr int kMeetingFiles = 16;

// The progress of one rank with its share, or of all ranks together.
struct Standing {
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

// Called on every rank, on the caller's thread, at each meeting.
using OnWorkProgress = std::function<void(const WorkProgress& progress)>;

// Collective. Calls `part` on every rank until that rank is done, and `met` on every rank, on the caller's
// thread, after each meeting. The caller must keep parts short; an exception of a part becomes its error. All
// ranks return the same status: InvalidArgument with the first rank's error for which IsDamage (folder.h)
// holds, if there is one; otherwise Unavailable with the first rank's other error, which names the rank
// unless it is 0. After an error no rank continues. Throws CommError.
absl::Status WorkTogether(comm::Communicator& comm, const std::function<absl::StatusOr<Standing>()>& part,
                          const std::function<void(const Standing& all)>& met);

// The reading of one rank.
class Reading {
 public:
  virtual ~Reading() = default;

  // Continues to read, about `most_bytes` or to the end. An error for which IsDamage (folder.h) holds
  // concerns the checkpoint; any other concerns the reading.
  virtual absl::Status Advance(int64_t most_bytes) = 0;

  virtual Standing standing() const = 0;
};

// Collective. Runs WorkTogether for what each rank reads of `path`.
absl::Status ReadTogether(comm::Communicator& comm, const std::string& path, Reading& reading,
                          const OnWorkProgress& on_progress);

// Collective. The status of WorkTogether for what every rank has done alone.
absl::Status AgreeOnReading(comm::Communicator& comm, const absl::Status& status);

// The status of `part`, or its exception as a status. The other ranks wait for this one, so they must learn
// of it.
absl::Status StatusOfPart(const std::function<absl::Status()>& part);

}  // namespace tandem::checkpoint
