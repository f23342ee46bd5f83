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

// Collective: removes folders of checkpoints, which may have many large files, and what else is named. Every
// rank removes its share of a folder's files and meets the others after kMeetingFiles (work_together.h), so
// that no collective waits for longer than that; rank 0 then removes the folder, with what another could not
// remove. `doomed`: paths that are not written to, of rank 0; what another rank gives is not used.
//
// on_progress: for each of `doomed`, in files.
//
// Returns on rank 0 for each that is still there why it cannot be removed, in the same words at each try; on
// the others nothing. Throws CommError.
std::vector<std::string> RemoveTogether(platform::Files& files, comm::Communicator& comm,
                                        const std::vector<std::string>& doomed,
                                        const OnWorkProgress& on_progress);

}  // namespace tandem::checkpoint
