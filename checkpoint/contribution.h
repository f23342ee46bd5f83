// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/shard.h"

namespace tandem::checkpoint {

// What a rank sends to rank 0 about its file, and the manifest that rank 0 makes of what all have sent.

struct Contribution {
  ManifestFile file;
  // With this rank's piece, or none; which file that lies in follows from its rank.
  std::vector<ManifestArray> arrays;
};

// Of a Contribution: what a rank has in its file. Throws CheckpointError for types that safetensors has no
// name for.
std::vector<ManifestArray> ArraysOf(const std::vector<Shard>& shards);

std::string ToText(const Contribution& contribution);

// Adds the files and arrays to `manifest`, which has none. texts: of the ranks' contributions, in rank order.
// InvalidArgument, naming the array, where two ranks differ about one or all together do not have it exactly
// once. Throws where a text is none of ToText.
absl::Status Collect(const std::vector<std::string>& texts, Manifest& manifest);

}  // namespace tandem::checkpoint
