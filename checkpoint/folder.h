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
#include "checkpoint/whole_steps.h"
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

// InvalidArgument where the file has another size than the manifest says.
absl::Status CheckSize(platform::Files& files, const std::string& path, const ManifestFile& file);

// What the error of a function above says: the checkpoint is not whole, or is of a build too old to be read.
// Unimplemented: it is of a newer build. Any other error (ESTALE, EIO, no descriptor left, ...) is of the
// reading, and the next try may find it whole.
bool IsDamage(const absl::Status& error);

// The temporary folders of this attempt, of earlier ones and of other jobs, to be removed
// (remove_together.h): while `self` owns the directory, no other job may save there. Each gets a name, where
// it can be renamed, under which nothing is written or published: "step-200.tmp.3.0123456789ab.gone". Paths.
absl::StatusOr<std::vector<std::string>> SetAsideTemporaries(platform::Files& files,
                                                             const std::string& directory, const Owner& self);

// Takes the name from the checkpoint of `step`, so that what a kill leaves of a removal is no checkpoint.
// Returns the path of what is to be removed. Requires that `self` owns the directory.
absl::StatusOr<std::string> SetAsideStep(platform::Files& files, const std::string& directory, int64_t step,
                                         const Owner& self);

// Keeps `current`, which has just been committed, and the keep - 1 newest before it of those that are known
// to be whole. Of the known ones older than these it takes the name, which comes first, so that a removal
// that stops half-way leaves no damaged checkpoint behind; it adds their steps to `removed`, and `doomed`
// gets what is to be removed of them (remove_together.h). Others do not count and stay. Reads none.
absl::Status SetAsideOlder(platform::Files& files, const std::string& directory, int keep, int64_t current,
                           const Owner& self, WholeSteps& whole, std::vector<int64_t>& removed,
                           std::vector<std::string>& doomed);

}  // namespace tandem::checkpoint
