// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "checkpoint/shard.h"
#include "device/memory.h"

namespace tandem::device {
class Device;
}

namespace tandem::checkpoint {

// Memory of a device, and as much of the host's that holds a copy of it at times.
struct CopiedMemory {
  device::Memory from;
  device::Memory to;
};

// A rank's shards as copies on the host, which a save writes while training goes on and changes the shards.
// Used by the issuing thread; shards() by one other between two copies.
class ShardCopies {
 public:
  // Every shard's data lie in what one of `memory` is copied from. All memory, the shards and their data
  // outlive it. Copies all of it once: what nothing changes is never copied again. Throws std::logic_error.
  ShardCopies(device::Device& device, const std::vector<Shard>& shards, std::vector<CopiedMemory> memory);
  ShardCopies(const ShardCopies&) = delete;
  ShardCopies& operator=(const ShardCopies&) = delete;

  // Makes the copies what the shards are now. Returns when they are. Requires that no run is in flight.
  void Copy();

  // Those of the constructor, with the copies as their data.
  const std::vector<Shard>& shards() const { return copies_; }

 private:
  device::Device& device_;
  const std::vector<CopiedMemory> memory_;
  std::vector<Shard> copies_;
};

}  // namespace tandem::checkpoint
