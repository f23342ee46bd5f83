// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/manifest.h"
#include "fsdp/slice.h"

namespace at {
class Tensor;
}
namespace c10 {
enum class ScalarType : int8_t;
}

namespace tandem::checkpoint {

// What this rank holds of an array, on the host or a device: elements [begin, begin + data.numel()) of a
// slice.
struct Shard {
  std::string name;  // of the parameter
  std::string kind = kWeight;
  fsdp::Shape shape;  // of the whole
  fsdp::Slice slice;  // no ranges: the whole
  int64_t begin = 0;
  const at::Tensor* data = nullptr;
  // Of the array's elements, which a save converts to; none: data's.
  std::optional<c10::ScalarType> type = std::nullopt;
};

c10::ScalarType TypeInFile(const Shard& shard);

// "model.norm.weight/exp_avg"
std::string TensorName(const Shard& shard);

// Of its slice.
fsdp::Range ElementsOf(const Shard& shard);

// Whether its slice is one of its shape, and its data are contiguous elements of that.
bool IsPart(const Shard& shard);

// A type of elements as safetensors names it. Throws CheckpointError for those that checkpoints do not have.
std::string SafetensorsDtype(c10::ScalarType type);

}  // namespace tandem::checkpoint
