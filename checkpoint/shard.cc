// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shard.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/device.h"

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

ShardCopies::ShardCopies(device::Device& device, const std::vector<Shard>& shards,
                         std::vector<CopiedMemory> memory)
    : device_(device), memory_(std::move(memory)), copies_(shards) {
  for (Shard& copy : copies_) {
    const auto [data, bytes] = copy.data.memory;
    const auto found =
        std::find_if(memory_.begin(), memory_.end(), [data = data, bytes = bytes](const CopiedMemory& each) {
          return data >= each.from.begin && data + bytes <= each.from.begin + each.from.bytes;
        });
    if (found == memory_.end()) {
      throw std::logic_error(absl::StrCat(TensorName(copy), " lies in no memory that is copied"));
    }
    copy.data.memory.begin = found->to.begin + (data - found->from.begin);
    copy.data.device = nullptr;
  }
  Copy();
}

void ShardCopies::Copy() {
  for (const CopiedMemory& each : memory_) {
    if (each.from.bytes > 0) {
      device_.CopyToHost(each.to.begin, each.from.begin, each.from.bytes);
    }
  }
  device_.Synchronize();
}

}  // namespace tandem::checkpoint
