// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::checkpoint {

// Ranks that each do their share of what takes minutes, as to read some 100 GB, and wait for each other.
//
// Between two parts of its share each rank meets the others: however much there is to do, no collective waits
// for longer than the slowest of them needs for one part, and the communicator's deadline is for a rank that
// does nothing any more, not for one that is not done yet.

// How much a rank reads between two meetings.
inline constexpr int64_t kMeetingBytes = int64_t{64} << 20;

// How many files a rank removes, or looks at the sizes of, between two meetings. A file system that is busy
// may take some seconds for each.
inline constexpr int kMeetingFiles = 16;

// How far one rank is with its share, or all are with theirs together.
struct Standing {
  bool done = false;
  // In bytes of what is read, or files of what is removed.
  int64_t amount = 0;  // so far
  int64_t total = 0;
};

// How far all ranks together are with the checkpoint `path`, in bytes or files.
struct WorkProgress {
  std::string path;
  int64_t done = 0;
  int64_t total = 0;
};

// Called on every rank, on the caller's thread, at each meeting.
using OnWorkProgress = std::function<void(const WorkProgress& progress)>;

// Collective: calls `part` on every rank until that rank is done, and `met` on every rank, on the caller's
// thread, after each meeting. The parts are the caller's to keep short; what a part throws is its error. The
// same status on every rank: InvalidArgument with the first rank's error for which IsDamage (folder.h), where
// there is one; else the first rank's other error as Unavailable, which names the rank unless it is 0. No
// rank goes on then. Throws CommError.
absl::Status WorkTogether(comm::Communicator& comm, const std::function<absl::StatusOr<Standing>()>& part,
                          const std::function<void(const Standing& all)>& met);

// What one rank reads.
class Reading {
 public:
  virtual ~Reading() = default;

  // Reads about `most_bytes` on, or to the end. An error for which IsDamage (folder.h) is one of the
  // checkpoint; any other is of the reading.
  virtual absl::Status Advance(int64_t most_bytes) = 0;

  virtual Standing standing() const = 0;
};

// Collective: WorkTogether of what each rank reads of `path`.
absl::Status ReadTogether(comm::Communicator& comm, const std::string& path, Reading& reading,
                          const OnWorkProgress& on_progress);

// Collective: the status of WorkTogether, of what every rank has done alone.
absl::Status AgreeOnReading(comm::Communicator& comm, const absl::Status& status);

// `part`'s status, or its exception as one: the other ranks wait for this one, so they must learn of it.
absl::Status StatusOfPart(const std::function<absl::Status()>& part);

}  // namespace tandem::checkpoint
