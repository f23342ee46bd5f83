// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/elements.h"
#include "checkpoint/manifest.h"
#include "device/memory.h"
#include "fsdp/slice.h"

namespace tandem::device {
class Device;
}

namespace tandem::checkpoint {

// The part of an array that this rank holds, on the host or a device: elements [begin, begin + data.size())
// of a slice.
struct Shard {
  std::string name;  // of the parameter
  std::string kind = kWeight;
  fsdp::Shape shape;  // of the whole array
  fsdp::Slice slice;  // empty: the whole array
  int64_t begin = 0;
  Elements data;
  // The element type that a save converts to; unset: data's type.
  std::optional<device::ElementKind> type = std::nullopt;
};

device::ElementKind TypeInFile(const Shard& shard);

// "model.norm.weight/exp_avg"
std::string TensorName(const Shard& shard);

// The range that the shard's elements have in its slice.
fsdp::Range ElementsOf(const Shard& shard);

// Whether the shard is valid: its slice lies within its shape, and its elements within the slice.
bool IsPart(const Shard& shard);

// Device memory, and host memory of the same size for a copy of it.
struct CopiedMemory {
  device::Memory from;
  device::Memory to;
};

// Copies of a rank's shards on the host, for a save that writes while training changes the shards. Used by
// the thread that issues the step program; one other thread may use shards() between two calls of Copy.
class ShardCopies {
 public:
  // The data of every shard must be part of the `from` memory of an element of `memory`; throws
  // std::logic_error otherwise. All memory, the shards and their data must outlive this object. The
  // constructor copies everything once.
  ShardCopies(device::Device& device, const std::vector<Shard>& shards, std::vector<CopiedMemory> memory);
  ShardCopies(const ShardCopies&) = delete;
  ShardCopies& operator=(const ShardCopies&) = delete;

  // Brings the copies up to date. Blocks until that is done. Requires that no run is in flight.
  void Copy();

  // The shards of the constructor, with the copies as their data.
  const std::vector<Shard>& shards() const { return copies_; }

 private:
  device::Device& device_;
  const std::vector<CopiedMemory> memory_;
  std::vector<Shard> copies_;
};

}  // namespace tandem::checkpoint
