// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "platform/files.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::checkpoint {

// How often ranks meet while they write.
struct WritingPace {
  absl::Duration between_meetings = absl::Seconds(1);
  // A rank that has written no part for this long meets the others only when it has, so that the
  // communicator's deadline ends a job whose disk hangs. The time is enough to sync platform::kSyncBytes at 2
  // MB/s.
  absl::Duration standstill = absl::Minutes(10);
};

// Collective. Every rank writes a file of its own, `path` in `folder`, and fsyncs both. Meanwhile it meets
// the others (work_together.h), so that no collective waits for a rank that is far behind. The files are
// written on threads of their own, each as fast as its disk allows.
//
// `next` is as in Files::WriteParts; it is called on the caller's thread, and its exception is this rank's
// error.
//
// Returns this rank's own status. If another rank fails, this one stops and returns OK, though its file may
// not be whole; the caller must still agree with the others. Throws CommError, once the part that is being
// written or synced is done.
absl::Status WriteTogether(platform::Files& files, comm::Communicator& comm, const std::string& folder,
                           const std::string& path,
                           const std::function<absl::StatusOr<std::string_view>()>& next,
                           const WritingPace& pace = {});

}  // namespace tandem::checkpoint
