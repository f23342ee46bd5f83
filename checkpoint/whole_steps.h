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

// The steps of a directory whose checkpoints are known to be whole, so that they are not read again to decide
// which to remove: those that this process has written or verified, and those that were there when it
// started, under a name that a checkpoint gets only when every file of it is written and that is taken from
// one that is found damaged, with their manifest and files of the size that it says.
//
// Of a job's rank 0, from when the job starts until it ends. A step that is not in it is of a damaged
// checkpoint, or somebody else has put it there since: it never takes the place of one that is.
using WholeSteps = std::set<int64_t>;

// Called on every rank, on the caller's thread, when the ranks have looked at the checkpoint of `step`.
// reason: why it is not known to be whole, the same on every rank; empty: it is.
using OnLooked = std::function<void(int64_t step, const std::string& reason)>;

// Collective: what is there when the job starts, the same on every rank. Reads manifests and sizes, and the
// content of no other file; the ranks share the files as in verify.h, and meet after every step, so that no
// collective waits for longer than one rank looks at its share of one checkpoint. One that any rank cannot
// read now, or finds otherwise, is not among them; the reason names the first such rank, unless it is 0.
// Throws CommError, and on every rank CheckpointError where rank 0 cannot list the directory; one that is not
// there has none.
WholeSteps FindWholeSteps(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                          const OnLooked& looked);

}  // namespace tandem::checkpoint
