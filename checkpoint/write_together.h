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
  // A rank that has written no part for that long, which is enough for a sync of platform::kSyncBytes at 2
  // MB/s, meets the others only when it has: the communicator's deadline ends a job whose disk hangs.
  absl::Duration standstill = absl::Minutes(10);
};

// Collective: every rank writes a file of its own, `path` in `folder`, fsyncs both, and meets the others
// meanwhile (work_together.h), so that no collective waits for a rank that is far behind. The files are
// written on threads of their own, each as fast as its disk takes it.
//
// next: as Files::WriteParts has it; called on the caller's thread, and what it throws is this rank's error.
//
// Returns this rank's own status. Where another rank fails this one stops, and its status is OK although its
// file may not be whole: the caller still has to agree with the others. Throws CommError, once the part that
// is being written or synced is done.
absl::Status WriteTogether(platform::Files& files, comm::Communicator& comm, const std::string& folder,
                           const std::string& path,
                           const std::function<absl::StatusOr<std::string_view>()>& next,
                           const WritingPace& pace = {});

}  // namespace tandem::checkpoint
