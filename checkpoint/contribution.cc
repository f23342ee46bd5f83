// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/contribution.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::checkpoint {

std::vector<ManifestArray> ArraysOf(const std::vector<Shard>& shards) {
  std::vector<ManifestArray> arrays;
  for (const Shard& shard : shards) {
    ManifestArray& array = arrays.emplace_back();
    array.name = shard.name;
    array.kind = shard.kind;
    array.dtype = SafetensorsDtype(TypeInFile(shard));
    array.shape = shard.shape;
    if (const int64_t elements = shard.data.size(); elements > 0) {  // the array must be known all the same
      array.pieces.push_back({.slice = shard.slice, .begin = shard.begin, .elements = elements});
    }
  }
  return arrays;
}

absl::Status Collect(const std::vector<std::string>& texts, Manifest& manifest) {
  std::map<std::string, size_t> index;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    Manifest own = ContentsOf(texts[rank]);
    manifest.files.push_back(std::move(own.files.at(0)));
    for (ManifestArray& array : own.arrays) {
      const std::string name = TensorName(array.name, array.kind);
      for (ManifestPiece& piece : array.pieces) {
        piece.file = static_cast<int>(rank);
      }
      const auto [place, added] = index.emplace(name, manifest.arrays.size());
      if (added) {
        manifest.arrays.push_back(std::move(array));
        continue;
      }
      ManifestArray& all = manifest.arrays[place->second];
      if (all.dtype != array.dtype || all.shape != array.shape || all.kind != array.kind) {
        return absl::InvalidArgumentError(absl::StrCat(
            "array ", name, ": rank ", rank, " has another type or shape than the ranks before it"));
      }
      all.pieces.insert(all.pieces.end(), array.pieces.begin(), array.pieces.end());
    }
  }
  return CheckCoverage(manifest);
}

}  // namespace tandem::checkpoint
