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

// An array that every rank holds whole: what a router keeps from step to step.
struct WholeArray {
  std::string name;
  device::Memory memory;
};

// A rank's whole state as arrays of a checkpoint, keyed by parameter: weights and Adam's moments, by the
// slices of them that the units' layouts have, so they depend neither on units nor on ranks. A rank saves
// what it alone owns of every parameter, and loads what it holds: where several ranks hold the same, that is
// more.
//
// The shards are of the units' own memory, wherever that is: neither a save nor a load has a copy of it on
// the host. But what a frozen unit holds in a type of its own is loaded into copies on the host, of
// checkpoints' type. Used by the issuing thread, while no run is in flight.
class ParameterArrays {
 public:
  // states: of the units, in their order, in `device`'s memory. Elements of checkpoints and of what is held
  // are of `type`, but a frozen unit holds weights of its own type, and no moments.
  // whole: arrays of `type` beside the units', which the first rank saves (is_first) and every rank loads.
  // `units` and all memory outlive it.
  ParameterArrays(device::Device& device, device::ElementKind type, const std::vector<fsdp::UnitShard>& units,
                  const std::vector<fsdp::StateMemory>& states, const std::vector<WholeArray>& whole = {},
                  bool is_first = true);
  ~ParameterArrays();
  ParameterArrays(const ParameterArrays&) = delete;
  ParameterArrays& operator=(const ParameterArrays&) = delete;

  const std::vector<Shard>& owned_shards();  // for Save
  const std::vector<Shard>& shards();        // for Load; until Loaded

  // After a Load: what `shards` got is the units' state. Waits.
  void Loaded();

 private:
  void MakeShards();
  // Adds a shard for every piece of a parameter that is held (owned: that this rank alone has), whose data
  // are parts of `arrays`, which are as held_; then those of the whole arrays.
  void AddPieces(const std::vector<Elements>& arrays, bool owned, std::vector<Shard>& shards) const;

  std::vector<const fsdp::ClassShard*> classes_;  // of all units
  const device::ElementKind type_;
  std::vector<std::string> whole_;  // their names
  const bool is_first_;
  // Per class and kind: what is held of the class; without memory: nothing. Behind them the whole arrays.
  std::vector<Elements> held_;
  std::vector<Shard> owned_shards_;
  std::vector<Elements> loaded_;     // as held_, in type_; empty: no load is in progress
  std::deque<std::string> on_host_;  // those of loaded_ that are not in place
  std::vector<Shard> shards_;
};

}  // namespace tandem::checkpoint
