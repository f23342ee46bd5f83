// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "device/memory.h"
#include "fsdp/unit_shard.h"

namespace tandem::device {
class Device;
}

namespace tandem::checkpoint {

// An array that every rank holds as a whole, such as what a router keeps from step to step.
struct WholeArray {
  std::string name;
  device::Memory memory;
};

// A rank's whole state as arrays of a checkpoint: weights and Adam's moments by parameter, in the slices that
// the units' layouts have. They depend neither on units nor on the number of ranks. A rank saves what only it
// owns of every parameter, and loads everything that it holds, which is more if several ranks hold the same.
//
// The shards are views of the units' own memory on the device, so neither a save nor a load copies it on the
// host. An exception are frozen units with a type of their own: they are loaded into copies on the host in
// the checkpoint's type. Used by the issuing thread while no run is in flight.
class ParameterArrays {
 public:
  // `states` belong to the units, in their order, in `device`'s memory. Elements in checkpoints and in memory
  // have type `type`, except that a frozen unit has weights of its own type and no moments. `whole` has
  // arrays of `type` that are not in units; the first rank saves them (is_first) and every rank loads them.
  // `units` and all memory outlive this object.
  ParameterArrays(device::Device& device, device::ElementKind type, const std::vector<fsdp::UnitShard>& units,
                  const std::vector<fsdp::StateMemory>& states, const std::vector<WholeArray>& whole = {},
                  bool is_first = true);
  ~ParameterArrays();
  ParameterArrays(const ParameterArrays&) = delete;
  ParameterArrays& operator=(const ParameterArrays&) = delete;

  const std::vector<Shard>& owned_shards();  // what this rank saves
  const std::vector<Shard>& shards();        // what this rank loads; valid until Loaded

  // Must be called after a Load: moves what `shards` got to the units' state. Waits until that is done.
  void Loaded();

 private:
  void MakeShards();
  // Adds a shard for every piece of a parameter that is held (owned: that this rank alone has), whose data
  // are parts of `arrays`, which are as held_; then those of the whole arrays.
  void AddPieces(const std::vector<Elements>& arrays, bool owned, std::vector<Shard>& shards) const;

  std::vector<const fsdp::ClassShard*> classes_;  // of all units, in order
  const device::ElementKind type_;
  std::vector<std::string> whole_;  // names of the whole arrays
  const bool is_first_;
  // Per class and kind: what is held of the class; without memory: nothing. Behind them the whole arrays.
  std::vector<Elements> held_;
  std::vector<Shard> owned_shards_;
  std::vector<Elements> loaded_;     // as held_, in type_; empty: no load is in progress
  std::deque<std::string> on_host_;  // those of loaded_ that are not in place
  std::vector<Shard> shards_;
};

}  // namespace tandem::checkpoint
