// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/parameter_arrays.h"
#include "checkpoint/shard.h"
#include "device/memory.h"
#include "device/static_arena.h"
#include "fsdp/unit_shard.h"
#include "model/config.h"
#include "schedules/program/program.h"

namespace tandem::comm {
class Communicator;
}
namespace tandem::device {
class Device;
class Region;
}  // namespace tandem::device
namespace tandem::plan {
struct JobPlan;
}

namespace tandem::trainer {

class Backend;

// The memory of one rank's programs: the arena on the device and pinned memory on the host. A buffer has one
// address, the same in every run. Immutable after construction.
class StageMemory {
 public:
  // `arena` has stage.arena_bytes of `device`, which must outlive this object. Persistent buffers start as
  // zeros. If fill_with_nan (for tests), the rest of the arena starts as NaN. `saved` is host memory for the
  // targets of Snapshots; if it is null, train_save cannot run. Throws device::OutOfMemory.
  StageMemory(const schedules::StagePrograms& stage, device::Device& device,
              std::shared_ptr<device::Region> arena, bool fill_with_nan,
              std::shared_ptr<device::Region> saved = nullptr);

  // Returns the memory of a buffer, which is on the host if the buffer's kind is. `element` is 0 or 1 for a
  // ring.
  device::Memory At(const schedules::Buffer& buffer, int element = 0) const;

  // Returns the memory of an operand in a run of that parity.
  device::Memory At(const schedules::Program& program, const schedules::Operand& operand, int parity) const;

  // Whether there is memory for the targets of Snapshots.
  bool saves() const { return saved_.has_value(); }

  device::Memory arena() const { return arena_.all(); }
  const std::shared_ptr<device::Region>& region() const { return arena_.region(); }

 private:
  const device::StaticArena arena_;
  const device::StaticArena host_;  // pinned if the device benefits; zeros at the start
  const int64_t saved_at_;          // addresses from here on are in saved_
  std::optional<const device::StaticArena> saved_;
};

// Makes the units of a plan, with `rank`'s shards. `backend` must outlive them.
std::vector<fsdp::UnitShard> MakeUnits(const plan::JobPlan& plan, int rank, Backend& backend);

// Returns, by unit, the memory of the weights and, unless the unit is frozen, of the moments.
std::vector<fsdp::StateMemory> StatesOf(const plan::JobPlan& plan, const StageMemory& memory);

// Returns the sources and destinations of Snapshots. Requires memory.saves().
std::vector<checkpoint::CopiedMemory> SavedOf(const plan::JobPlan& plan, const StageMemory& memory);

// Return the states that checkpoints hold besides the units: states that are updated once a step, by Hugging
// Face name. The first function returns the names in all stages, the second the arrays in the plan's stage.
// The counters by which these states are updated are in no checkpoint, because they are zeros whenever one is
// saved.
std::vector<std::string> UpdatedStateNames(const plan::JobPlan& plan);
std::vector<checkpoint::WholeArray> UpdatedStatesOf(const plan::JobPlan& plan, const StageMemory& memory);

// The host memory that a rank still wants on its machine, and the memory that the machine has left.
struct HostRoom {
  std::string host;
  int64_t wanted = 0;     // in bytes
  int64_t available = 0;  // in bytes, before any rank has reserved its part
};

std::string ToText(const HostRoom& room);

// `texts` has ToText of every rank. Returns why the first machine has no room for what all its ranks want
// with a tenth of its available memory left over, or the empty string if all machines have room.
std::string WhyNoRoom(const std::vector<std::string>& texts);

// Pinned host memory, or the reason why no rank gets any.
struct SharedRoom {
  std::shared_ptr<device::Region> region;
  std::string refused;
};

// Collective. Reserves `bytes` on this rank's machine, `host`. The region is null on all ranks if a machine
// has no room for the `wanted` bytes of all its ranks, or if a rank cannot reserve its memory. Throws
// CommError.
SharedRoom ReserveTogether(comm::Communicator& comm, device::Device& device, const std::string& host,
                           int64_t wanted, int64_t bytes);

}  // namespace tandem::trainer
