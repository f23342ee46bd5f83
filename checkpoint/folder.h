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

// The names in a checkpoint directory, and what makes a folder in it valid.

std::string StepName(int64_t step);                        // "step-200"
std::optional<int64_t> StepOfName(std::string_view name);  // of a StepName

// "step-200.tmp.3.0123456789ab". No two attempts, of one job or of two, write to the same folder.
std::string TemporaryName(int64_t step, const Owner& owner);

// Who writes to a folder of a TemporaryName.
struct TemporaryFolder {
  int attempt = 0;
  std::string job;  // empty in names of older builds
};
std::optional<TemporaryFolder> ParseTemporaryName(std::string_view name);

// The steps that have a folder, newest first. An absent directory has none.
absl::StatusOr<std::vector<int64_t>> ListSteps(platform::Files& files, const std::string& directory);

// The manifest of a checkpoint, and that it is of the step that its folder's name says.
absl::StatusOr<Manifest> ReadFolderManifest(platform::Files& files, const std::string& path);

// One file's content, of the size and the digest that the manifest says.
absl::StatusOr<std::string> ReadVerified(platform::Files& files, const std::string& path,
                                         const ManifestFile& file);

// Manifest and every file, digests included.
absl::StatusOr<Manifest> Verify(platform::Files& files, const std::string& path);

// Removes the temporary folders of this attempt, of earlier ones and of other jobs: while `self` owns the
// directory, nobody else may save there.
absl::Status RemoveTemporaries(platform::Files& files, const std::string& directory, const Owner& self);

// Keeps `current`, which has just been committed, and the keep - 1 newest valid ones before it; removes
// the valid ones older than these, and adds their steps to `removed`. Damaged ones do not count and stay.
absl::Status Retain(platform::Files& files, const std::string& directory, int keep, int64_t current,
                    const Owner& self, std::vector<int64_t>& removed);

}  // namespace tandem::checkpoint
