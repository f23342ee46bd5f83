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

// Retention: which folders of a checkpoint directory stay. A folder that does not stay is first renamed, so
// that a removal that stops half-way leaves no damaged checkpoint; then the ranks remove it
// (remove_together.h). All functions but DeleteStep require that `self` owns the directory.

// The steps of a directory whose checkpoints are known to be whole, so that they need not be read again to
// decide which to remove. These are checkpoints that this process has written or verified. Those that existed
// when it started count, too, if their manifest is valid and their files have the sizes in it, because a
// checkpoint gets its name only when every file is written, and loses it if it is found damaged.
//
// Kept by a job's rank 0 from start to end. A step that is not in it is of a damaged checkpoint, or was put
// there since; it never replaces one that is in it.
using WholeSteps = std::set<int64_t>;

// Renames the temporary folders of this attempt, of earlier ones and of other jobs, none of which may save
// there now. Returns their paths. A folder that can be renamed gets a name under which nothing is written or
// published: "step-200.tmp.3.0123456789ab.gone".
absl::StatusOr<std::vector<std::string>> SetAsideTemporaries(platform::Files& files,
                                                             const std::string& directory, const Owner& self);

// Renames the checkpoint of `step` and returns its new path.
absl::StatusOr<std::string> SetAsideStep(platform::Files& files, const std::string& directory, int64_t step,
                                         const Owner& self);

// Applies checkpoint.keep: `current`, which has just been committed, stays, and so do the keep - 1 newest
// checkpoints before it of those known to be whole. Older known ones are renamed; their steps are added to
// `removed` and their new paths to `doomed`. Checkpoints that are not known to be whole do not count and
// stay. Reads no checkpoint.
absl::Status SetAsideOlder(platform::Files& files, const std::string& directory, int keep, int64_t current,
                           const Owner& self, WholeSteps& whole, std::vector<int64_t>& removed,
                           std::vector<std::string>& doomed);

// Deletes a saved step on a user's request. `self` owns the directory meanwhile and renews the ownership, so
// that no job saves there however long the disk takes to verify; `pause` is that of TakeOwnership. Returns
// FailedPrecondition if a job owns the directory, or, unless even_last, if this step verifies and no other
// does. Returns Aborted if `self` has lost the directory. In these cases nothing is deleted.
absl::Status DeleteStep(platform::Files& files, const std::string& directory, int64_t step, const Owner& self,
                        bool even_last, const std::function<void()>& pause);

}  // namespace tandem::checkpoint
