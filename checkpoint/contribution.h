// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "checkpoint/manifest.h"
#include "checkpoint/shard.h"

namespace tandem::checkpoint {

// What the ranks know of a checkpoint that they have written, and the manifest that rank 0 makes of it.

// What a rank has in its file, which is file 0. Throws CheckpointError for types that safetensors has no name
// for.
std::vector<ManifestArray> ArraysOf(const std::vector<Shard>& shards);

// Adds the files and arrays to `manifest`, which has none. texts: ContentsText of each rank's one file, in
// rank order. InvalidArgument, naming the array, where two ranks differ about one or all together do not have
// it exactly once. Throws where a text is none of ContentsText.
absl::Status Collect(const std::vector<std::string>& texts, Manifest& manifest);

}  // namespace tandem::checkpoint
