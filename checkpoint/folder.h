#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/manifest.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// The names in a checkpoint directory, and what makes a folder in it valid.

std::string StepName(int64_t step);                        // "step-200"
std::string TemporaryName(int64_t step, int attempt);      // "step-200.tmp.3"
std::optional<int64_t> StepOfName(std::string_view name);  // of a StepName
std::optional<int> AttemptOfTemporary(std::string_view name);

// The steps that have a folder, newest first. An absent directory has none.
absl::StatusOr<std::vector<int64_t>> ListSteps(platform::Files& files, const std::string& directory);

// The manifest of a checkpoint, and that it is of the step that its folder's name says.
absl::StatusOr<Manifest> ReadFolderManifest(platform::Files& files, const std::string& path);

// One file's content, of the size and the digest that the manifest says.
absl::StatusOr<std::string> ReadVerified(platform::Files& files, const std::string& path,
                                         const ManifestFile& file);

// Manifest and every file, digests included.
absl::StatusOr<Manifest> Verify(platform::Files& files, const std::string& path);

// Removes temporary folders of this and earlier attempts: nobody writes to them any more.
absl::Status RemoveTemporaries(platform::Files& files, const std::string& directory, int attempt);

// Keeps `current`, which has just been committed, and the keep - 1 newest valid ones before it; removes
// the valid ones older than these, and adds their steps to `removed`. Damaged ones do not count and stay.
absl::Status Retain(platform::Files& files, const std::string& directory, int keep, int64_t current,
                    int attempt, std::vector<int64_t>& removed);

}  // namespace tandem::checkpoint
