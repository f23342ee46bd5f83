// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/manifest.h"
#include "checkpoint/owner.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// The names in a checkpoint directory, and the checks of a folder in it.

std::string StepName(int64_t step);                        // "step-200"
std::optional<int64_t> StepOfName(std::string_view name);  // inverse of StepName; unset for other names

// The folder to which an attempt writes a step: "step-200.tmp.3.0123456789ab". No two attempts, of one job or
// of two, have the same.
std::string TemporaryName(int64_t step, const Owner& owner);

// What a temporary name ends in once its folder is only to be removed (retention.h).
inline constexpr char kGone[] = ".gone";

// The attempt that writes to a folder of such a name.
struct TemporaryFolder {
  int attempt = 0;
  std::string job;  // empty in names that older builds made
};
std::optional<TemporaryFolder> ParseTemporaryName(std::string_view name);

// The steps that have a folder, newest first. If the directory does not exist, there are none.
absl::StatusOr<std::vector<int64_t>> ListSteps(platform::Files& files, const std::string& directory);

// Reads the manifest of a checkpoint, and checks that its step is the one in the folder's name.
absl::StatusOr<Manifest> ReadFolderManifest(platform::Files& files, const std::string& path);

// Checks that the file has the size in the manifest. Returns InvalidArgument if not.
absl::Status CheckSize(platform::Files& files, const std::string& path, const ManifestFile& file);

// Whether an error of a function above means that the checkpoint is not whole, or was written by a build that
// is too old. Unimplemented means that it is of a newer build. Any other error (ESTALE, EIO, no free
// descriptor, ...) concerns the reading, and the next try may find it whole.
bool IsDamage(const absl::Status& error);

}  // namespace tandem::checkpoint
