// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/commands/commands.h"

namespace tandem::cli {

// Whether the folder is one step of a checkpoint.
bool IsStepFolder(const std::string& folder);

// The folder of checkpoints, or of one step, that a command names: a folder of this machine, or a job, whose
// checkpoint.directory this machine sees. Links are followed. Asks the controller only for a job. Errors are
// Failures.
absl::StatusOr<std::string> CheckpointFolder(Context& context, const std::string& job);

// Returns the folder of a step: `folder` if it is one, otherwise that of `step` or of the newest step in it.
absl::StatusOr<std::string> StepFolderIn(Context& context, const std::string& folder,
                                         const std::optional<int64_t>& step);

}  // namespace tandem::cli
