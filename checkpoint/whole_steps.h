// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "platform/files.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::checkpoint {

// The steps of a directory whose checkpoints are known to be whole, so that they need not be read again to
// decide which to remove. These are checkpoints that this process has written or verified. Those that existed
// when it started count, too, if their manifest is valid and their files have the sizes in it, because a
// checkpoint gets its name only when every file is written, and loses it if it is found damaged.
//
// Kept by a job's rank 0 from start to end. A step that is not in it is of a damaged checkpoint, or was put
// there since; it never replaces one that is in it.
using WholeSteps = std::set<int64_t>;

// Called on every rank, on the caller's thread, when the ranks have examined the checkpoint of `step`.
// `reason` says why it is not known to be whole, the same on every rank; empty: it is.
using OnLooked = std::function<void(int64_t step, const std::string& reason)>;

// Collective. Finds the steps that exist when the job starts; all ranks return the same. Reads manifests and
// sizes, but not the content of other files. The ranks share the files as in verify.h and meet after every
// step, so that no collective waits longer than a rank needs for its share of one checkpoint. A step is left
// out if any rank cannot read it now or finds it different; the reason names the first such rank unless it is
// 0. Throws CommError, and CheckpointError on every rank if rank 0 cannot list the directory. A directory
// that does not exist has no steps.
WholeSteps FindWholeSteps(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                          const OnLooked& looked);

}  // namespace tandem::checkpoint
