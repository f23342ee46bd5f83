// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shards_file.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard.h"
#include "platform/files.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

// Whether the shard's memory has the bytes that the file has.
bool IsInPlace(const Shard& shard) {
  return shard.data.device == nullptr && shard.data.type == TypeInFile(shard);
}

}  // namespace

absl::StatusOr<ShardsFile> ShardsFile::Make(const std::vector<Shard>& shards) {
  std::vector<TensorToWrite> tensors;
  for (const Shard& shard : shards) {
    const int64_t elements = shard.data.size();
    if (!IsPart(shard)) {
      return absl::InvalidArgumentError(
          absl::StrCat("array ", TensorName(shard), ": its shard is not a part of it"));
    }
    if (elements > 0) {
      tensors.push_back(
          {.name = TensorName(shard), .dtype = SafetensorsDtype(TypeInFile(shard)), .shape = {elements}});
    }
  }
  TANDEM_ASSIGN_OR_RETURN(std::string beginning, SafetensorsBeginning(tensors, {{"format", "pt"}}));
  return ShardsFile(shards, std::move(beginning));
}

ShardsFile::ShardsFile(const std::vector<Shard>& shards, std::string beginning)
    : shards_(shards), beginning_(std::move(beginning)), shard_digests_(shards.size()) {}

std::string_view ShardsFile::Next() {
  std::string_view part;
  if (!std::exchange(begun_, true)) {
    part = beginning_;
  }
  while (part.empty() && shard_ < shards_.size()) {
    const Shard& shard = shards_[shard_];
    part = NextOf(shard);
    const bool is_exported = shard.kind == kWeight || shard.kind == kState;
    if (is_exported) {
      digest_of_shard_.Add(part);
    }
    if (element_ == shard.data.size()) {
      if (is_exported && element_ > 0) {
        shard_digests_[shard_] = std::exchange(digest_of_shard_, platform::Xxh3()).Get();
      }
      ++shard_;
      element_ = 0;
    }
  }
  digest_.Add(part);
  bytes_ += static_cast<int64_t>(part.size());
  return part;
}

std::string_view ShardsFile::NextOf(const Shard& shard) {
  const device::ElementKind type = TypeInFile(shard);
  const int64_t element_bytes = device::BytesOf(type);
  const int64_t begin = element_;
  const int64_t elements = std::min(platform::kFilePartBytes / element_bytes, shard.data.size() - begin);
  element_ += elements;
  const Elements part = shard.data.Part(begin, elements);
  if (IsInPlace(shard)) {
    return {part.memory.begin, static_cast<size_t>(part.memory.bytes)};
  }
  Read(part, type, staging_);
  return staging_;
}

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
