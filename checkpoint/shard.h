// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace at {
class Tensor;
}
namespace c10 {
enum class ScalarType : int8_t;
}

namespace tandem::checkpoint {

// A 1-D array of `elements` elements of which this rank holds [begin, begin + data.numel()), on the host or a
// device.
struct Shard {
  std::string name;  // "model.norm.weight/exp_avg"
  int64_t elements = 0;
  int64_t begin = 0;
  const at::Tensor* data = nullptr;
  // Of the array's elements, which a save converts to; none: data's.
  std::optional<c10::ScalarType> type = std::nullopt;
};

c10::ScalarType TypeInFile(const Shard& shard);

// A type of elements as safetensors names it. Throws CheckpointError for those that checkpoints do not have.
std::string SafetensorsDtype(c10::ScalarType type);

}  // namespace tandem::checkpoint
