// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/owner.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// Decides which folders of a checkpoint directory are kept. A folder to be removed is first renamed, so that
// a removal that stops half-way leaves no damaged checkpoint; then the ranks remove it (remove_together.h).
// All functions except DeleteStep require that `self` owns the directory.

// The steps of a directory whose checkpoints are known to be whole, so that retention need not read them
// again: checkpoints that this process has written or verified, and checkpoints that existed when it started,
// have a valid manifest, and have files of the sizes in it. Sizes suffice because a checkpoint gets its name
// only when every file is written, and is renamed if it is found damaged.
//
// Rank 0 of a job keeps this set from its start to its end. A checkpoint outside the set is damaged, could
// not be read when the job started, or was put there later by a user; retention neither counts nor removes
// it.
using WholeSteps = std::set<int64_t>;

// Renames the temporary folders of this attempt, of earlier attempts and of other jobs, to names like
// "step-200.tmp.3.0123456789ab.gone", so that no process that was only stopped can publish them. This attempt
// must not be saving now. Returns the new paths; of a folder that cannot be renamed, or was renamed before,
// its path.
absl::StatusOr<std::vector<std::string>> SetAsideTemporaries(platform::Files& files,
                                                             const std::string& directory, const Owner& self);

// Renames the checkpoint of `step` and returns its new path.
absl::StatusOr<std::string> SetAsideStep(platform::Files& files, const std::string& directory, int64_t step,
                                         const Owner& self);

// Applies checkpoint.keep. Keeps `current`, which has just been committed, and the keep - 1 newest
// checkpoints before it that are in `whole`. Renames the other checkpoints in `whole` that are older than
// `current`, and adds their steps to `removed` and their new paths to `doomed`. Checkpoints outside `whole`
// are neither counted nor removed. Reads no checkpoint.
absl::Status SetAsideOlder(platform::Files& files, const std::string& directory, int keep, int64_t current,
                           const Owner& self, WholeSteps& whole, std::vector<int64_t>& removed,
                           std::vector<std::string>& doomed);

// Deletes a saved step on a user's request. Unless even_last, it first looks for another step that verifies,
// which may take long. Meanwhile `self` owns the directory and renews the ownership, so that no job saves
// there; `pause` is that of TakeOwnership. Returns FailedPrecondition if a live job owns the directory, or if
// the step is the only one that verifies and even_last is false. Returns Aborted if `self` has lost the
// directory. Deletes nothing in these cases.
absl::Status DeleteStep(platform::Files& files, const std::string& directory, int64_t step, const Owner& self,
                        bool even_last, const std::function<void()>& pause);

}  // namespace tandem::checkpoint
