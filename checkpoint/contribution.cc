// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/contribution.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::checkpoint {

std::vector<ManifestArray> ArraysOf(const std::vector<Shard>& shards) {
  std::vector<ManifestArray> arrays;
  for (const Shard& shard : shards) {
    ManifestArray& array = arrays.emplace_back();
    array.name = shard.name;
    array.dtype = SafetensorsDtype(TypeInFile(shard));
    array.elements = shard.elements;
    if (const int64_t elements = shard.data->numel(); elements > 0) {  // the array must be known all the same
      array.pieces.push_back({.begin = shard.begin, .elements = elements});
    }
  }
  return arrays;
}

std::string ToText(const Contribution& contribution) {
  using Json = nlohmann::ordered_json;
  Json arrays = Json::array();
  for (const ManifestArray& array : contribution.arrays) {
    const ManifestPiece piece = array.pieces.empty() ? ManifestPiece{} : array.pieces.front();
    arrays.push_back({array.name, array.dtype, array.elements, piece.begin, piece.elements});
  }
  return Json{{"name", contribution.file.name},
              {"bytes", contribution.file.bytes},
              {"digest", contribution.file.digest},
              {"arrays", std::move(arrays)}}
      .dump();
}

absl::Status Collect(const std::vector<std::string>& texts, Manifest& manifest) {
  using Json = nlohmann::ordered_json;
  std::map<std::string, size_t> index;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const Json json = Json::parse(texts[rank]);
    manifest.files.push_back({.name = json.at("name").get<std::string>(),
                              .bytes = json.at("bytes").get<int64_t>(),
                              .digest = json.at("digest").get<std::string>()});
    for (const Json& entry : json.at("arrays")) {
      const auto name = entry.at(0).get<std::string>();
      const auto [place, added] = index.emplace(name, manifest.arrays.size());
      if (added) {
        ManifestArray& array = manifest.arrays.emplace_back();
        array.name = name;
        array.dtype = entry.at(1).get<std::string>();
        array.elements = entry.at(2).get<int64_t>();
      }
      ManifestArray& array = manifest.arrays[place->second];
      if (array.dtype != entry.at(1).get<std::string>() || array.elements != entry.at(2).get<int64_t>()) {
        return absl::InvalidArgumentError(absl::StrCat("array ", name, ": rank ", rank,
                                                       " has another type or size than the ranks before it"));
      }
      const auto elements = entry.at(4).get<int64_t>();
      if (elements == 0) {
        continue;
      }
      array.pieces.push_back(
          {.file = static_cast<int>(rank), .begin = entry.at(3).get<int64_t>(), .elements = elements});
    }
  }
  return CheckCoverage(manifest);
}

}  // namespace tandem::checkpoint
