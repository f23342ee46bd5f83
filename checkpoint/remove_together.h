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

// Collective. Removes paths, mostly folders of checkpoints, which may have many large files. Every rank
// removes its share of a folder's files and meets the others after kMeetingFiles (work_together.h), so that
// no collective waits longer than that takes; rank 0 then removes the folder, and what other ranks could not
// remove. `doomed` has paths that nothing writes to; only rank 0's is used. on_progress is called for each of
// them, with amounts in files.
//
// Returns on rank 0, for each path that still exists, why it cannot be removed, in the same words at each
// try; nothing on other ranks. Throws CommError.
std::vector<std::string> RemoveTogether(platform::Files& files, comm::Communicator& comm,
                                        const std::vector<std::string>& doomed,
                                        const OnWorkProgress& on_progress);

}  // namespace tandem::checkpoint
