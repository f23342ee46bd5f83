// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shard.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "checkpoint/checkpoint.h"

namespace tandem::checkpoint {

std::string TensorName(const Shard& shard) { return TensorName(shard.name, shard.kind); }

fsdp::Range ElementsOf(const Shard& shard) {
  return {.begin = shard.begin, .end = shard.begin + shard.data->numel()};
}

bool IsPart(const Shard& shard) {
  return shard.data->dim() == 1 && shard.data->is_contiguous() && fsdp::NumElements(shard.shape) &&
         fsdp::IsSliceOf(shard.shape, shard.slice) && shard.begin >= 0 &&
         ElementsOf(shard).end <= fsdp::NumElements(shard.shape, shard.slice);
}

c10::ScalarType TypeInFile(const Shard& shard) { return shard.type.value_or(shard.data->scalar_type()); }

std::string SafetensorsDtype(c10::ScalarType type) {
  using enum c10::ScalarType;
  switch (type) {
    case Float:
      return "F32";
    case Double:
      return "F64";
    case BFloat16:
      return "BF16";
    case Long:
      return "I64";
    case Byte:
      return "U8";
    default:
      throw CheckpointError(std::string("checkpoint: arrays of ") + c10::toString(type) + " cannot be saved");
  }
}

}  // namespace tandem::checkpoint
