// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "checkpoint/work_together.h"
#include "platform/files.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::checkpoint {

// Collective. Removes the paths `doomed`, of which only rank 0's list is used. They are mostly folders of
// checkpoints with many large files; nothing may write to them any more. Every rank removes its share of a
// folder's files and meets the others after every kMeetingFiles files (work_together.h), so that no
// collective waits for long. Rank 0 then removes the folder, and what other ranks could not remove.
// on_progress is called after each meeting, with amounts in files.
//
// Returns on rank 0 a reason for each path that could not be removed, and nothing on other ranks. A later try
// that fails alike gives the same text. Throws CommError.
std::vector<std::string> RemoveTogether(platform::Files& files, comm::Communicator& comm,
                                        const std::vector<std::string>& doomed,
                                        const OnWorkProgress& on_progress);

}  // namespace tandem::checkpoint
