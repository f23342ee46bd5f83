// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/commands/commands.h"

namespace tandem::cli {

// Whether the folder holds one saved step: it has a manifest.
bool IsStepFolder(const std::string& folder);

// Returns the folder of checkpoints, or of one step, that the argument `job` means: a folder of this machine
// (links are followed), or a job, whose checkpoint.directory must exist on this machine. Calls the controller
// only for a job. Errors are Failures (terminal/error.h).
absl::StatusOr<std::string> CheckpointFolder(Context& context, const std::string& job);

// Returns the folder of one step: `folder` itself if it holds a step (then `step` must not be given),
// otherwise the folder in `folder` of `step` or, without `step`, of the newest step. Errors are Failures.
absl::StatusOr<std::string> StepFolderIn(Context& context, const std::string& folder,
                                         const std::optional<int64_t>& step);

}  // namespace tandem::cli
