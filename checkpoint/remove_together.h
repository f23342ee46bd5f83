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

// Collective. Removes the paths `doomed`, mostly folders of checkpoints with many large files, to which
// nothing may write any more; only rank 0's list is used. Every rank removes its share of a folder's files
// and meets the others after every kMeetingFiles files (work_together.h), so that no collective waits for
// long. Rank 0 then removes the folder, and the files that other ranks could not remove. on_progress is
// called for each path, with amounts in files.
//
// Returns on rank 0 a reason for each path that could not be removed, with the same text at each try, and
// nothing on other ranks. Throws CommError.
std::vector<std::string> RemoveTogether(platform::Files& files, comm::Communicator& comm,
                                        const std::vector<std::string>& doomed,
                                        const OnWorkProgress& on_progress);

}  // namespace tandem::checkpoint
