// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shards_file.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard.h"
#include "platform/files.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

// Whether its memory holds what the file does.
bool IsInPlace(const Shard& shard) {
  return shard.data->is_cpu() && shard.data->scalar_type() == TypeInFile(shard);
}

}  // namespace

absl::StatusOr<ShardsFile> ShardsFile::Make(const std::vector<Shard>& shards) {
  std::vector<TensorToWrite> tensors;
  for (const Shard& shard : shards) {
    const int64_t elements = shard.data->numel();
    if (!IsPart(shard)) {
      return absl::InvalidArgumentError(
          absl::StrCat("array ", TensorName(shard), ": its shard is not a contiguous part of it"));
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

ShardsFile::~ShardsFile() = default;
ShardsFile::ShardsFile(ShardsFile&&) noexcept = default;

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
    if (element_ == shard.data->numel()) {
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
  const c10::ScalarType type = TypeInFile(shard);
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(type));
  const int64_t begin = element_;
  const int64_t elements = std::min(platform::kFilePartBytes / element_bytes, shard.data->numel() - begin);
  const auto bytes = static_cast<size_t>(elements * element_bytes);
  element_ += elements;
  if (IsInPlace(shard)) {
    return {static_cast<const char*>(shard.data->const_data_ptr()) + begin * element_bytes, bytes};
  }
  if (staging_ == nullptr) {
    staging_ = std::make_unique<at::Tensor>(at::empty({platform::kFilePartBytes}, at::kByte));
  }
  at::Tensor staged = staging_->narrow(0, 0, elements * element_bytes).view(type);
  staged.copy_(shard.data->narrow(0, begin, elements));
  return {static_cast<const char*>(staged.const_data_ptr()), bytes};
}

}  // namespace tandem::checkpoint
