// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "checkpoint/manifest.h"
#include "checkpoint/shard.h"

namespace tandem::checkpoint {

// What each rank knows of a checkpoint that the ranks have written, and the manifest that rank 0 makes of it.

// The arrays in this rank's file, which is file 0. Throws CheckpointError for types that safetensors does not
// have.
std::vector<ManifestArray> ArraysOf(const std::vector<Shard>& shards);

// Adds files and arrays to `manifest`, which has none. `texts` is ContentsText of each rank's file, in the
// order of ranks. Returns InvalidArgument, naming the array, if two ranks disagree about an array, or if the
// ranks together do not cover it exactly once. Throws if a text was not made by ContentsText.
absl::Status Collect(const std::vector<std::string>& texts, Manifest& manifest);

}  // namespace tandem::checkpoint
