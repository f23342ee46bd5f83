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
  // If a rank has written no part for this long, it stops meeting the others until its disk continues, so
  // that the communicator's deadline ends a job whose disk hangs. Ten minutes suffice to sync
  // platform::kSyncBytes at 2 MB/s.
  absl::Duration standstill = absl::Minutes(10);
};

// Collective. Every rank writes its own file, `path`, which must be in `folder`, and fsyncs the file and the
// folder. A thread writes, as fast as the disk allows, while the caller's thread meets the other ranks
// (work_together.h), so that no collective waits for a rank with a slow disk.
//
// `next` returns the next part of the file, as in Files::WriteParts. It is called on the caller's thread; if
// it throws, this rank returns an error.
//
// Returns this rank's own status. If another rank fails, this rank stops and returns OK, though its file may
// be incomplete, so the ranks must agree on their statuses afterwards. Before it throws CommError, it waits
// until the current part is written and synced.
absl::Status WriteTogether(platform::Files& files, comm::Communicator& comm, const std::string& folder,
                           const std::string& path,
                           const std::function<absl::StatusOr<std::string_view>()>& next,
                           const WritingPace& pace = {});

}  // namespace tandem::checkpoint
