// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shard.h"

namespace tandem::checkpoint {

std::string TensorName(const Shard& shard) { return TensorName(shard.name, shard.kind); }

fsdp::Range ElementsOf(const Shard& shard) {
  return {.begin = shard.begin, .end = shard.begin + shard.data.size()};
}

bool IsPart(const Shard& shard) {
  return fsdp::NumElements(shard.shape) && fsdp::IsSliceOf(shard.shape, shard.slice) && shard.begin >= 0 &&
         ElementsOf(shard).end <= fsdp::NumElements(shard.shape, shard.slice);
}

device::ElementKind TypeInFile(const Shard& shard) { return shard.type.value_or(shard.data.type); }

}  // namespace tandem::checkpoint
