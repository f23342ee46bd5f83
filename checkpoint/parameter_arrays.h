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

// An array that every rank holds as a whole, such as the state of a router.
struct WholeArray {
  std::string name;
  device::Memory memory;
};

// Presents a rank's state as shards of a checkpoint's arrays. The arrays are the weights and Adam's moments
// of each parameter; they depend neither on units nor on the number of ranks. If several ranks hold copies of
// an element, one of them owns it. A rank saves the elements that it owns, and loads all elements that it
// holds.
//
// The shards are views of the units' memory on the device, so neither a save nor a load needs a copy on the
// host. The exception is frozen units with a type of their own: they are loaded into host memory in the
// checkpoint's type, and then converted. Used by the thread that issues the step program, while no run of the
// program is in flight.
class ParameterArrays {
 public:
  // states[i] belongs to units[i]; all are in the memory of `device`. Elements in checkpoints and in memory
  // have type `type`; only a frozen unit has weights of another type in memory, and no moments. `whole` has
  // arrays of `type` outside units; the rank with is_first saves them, and every rank loads them. `units` and
  // all memory must outlive this object.
  ParameterArrays(device::Device& device, device::ElementKind type, const std::vector<fsdp::UnitShard>& units,
                  const std::vector<fsdp::StateMemory>& states, const std::vector<WholeArray>& whole = {},
                  bool is_first = true);
  ~ParameterArrays();
  ParameterArrays(const ParameterArrays&) = delete;
  ParameterArrays& operator=(const ParameterArrays&) = delete;

  const std::vector<Shard>& owned_shards();  // what this rank saves
  const std::vector<Shard>& shards();        // what this rank loads; valid until Loaded

  // Must be called after a Load: converts the copies on the host into the units' memory. Blocks until that is
  // done. Invalidates shards().
  void Loaded();

 private:
  void MakeShards();
  // Adds to `shards` a shard for every piece of a parameter that this rank holds (if `owned`: owns), and then
  // the whole arrays. `arrays` has the same order as held_; the shards' data are parts of it.
  void AddPieces(const std::vector<Elements>& arrays, bool owned, std::vector<Shard>& shards) const;

  std::vector<const fsdp::ClassShard*> classes_;  // of all units, in order
  const device::ElementKind type_;
  std::vector<std::string> whole_;  // names of the whole arrays
  const bool is_first_;
  // The elements that this rank holds, by class and kind (without memory if there are none), and then the
  // whole arrays.
  std::vector<Elements> held_;
  std::vector<Shard> owned_shards_;
  std::vector<Elements> loaded_;     // as held_, but all of type_; empty if no load is in progress
  std::deque<std::string> on_host_;  // memory of the copies among loaded_
  std::vector<Shard> shards_;
};

}  // namespace tandem::checkpoint
