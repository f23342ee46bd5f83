// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/owner.h"
#include "checkpoint/whole_steps.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// Retention: which folders of a checkpoint directory stay. A folder that does not stay is first renamed, so
// that a removal that stops half-way leaves no damaged checkpoint; then the ranks remove it
// (remove_together.h). All functions require that `self` owns the directory.

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

}  // namespace tandem::checkpoint
