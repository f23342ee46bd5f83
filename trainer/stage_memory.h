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

// The memory of one rank's programs: the arena and the pinned host memory, with the sizes that the programs
// need, and the place of each buffer in them. A buffer has one address, the same in every run. Immutable
// after construction.
class StageMemory {
 public:
  // `arena` has stage.arena_bytes of `device`, which outlives this object. Persistent buffers start as zeros.
  // If fill_with_nan (for tests), the arena above them holds NaN until it is written. `saved` is host memory
  // for the targets of Snapshots; if it is null, train_save cannot run. Throws device::OutOfMemory.
  StageMemory(const schedules::StagePrograms& stage, device::Device& device,
              std::shared_ptr<device::Region> arena, bool fill_with_nan,
              std::shared_ptr<device::Region> saved = nullptr);

  // The memory of a buffer, on the device or for host kinds on the host. `element` is 0 or 1 for a ring.
  device::Memory At(const schedules::Buffer& buffer, int element = 0) const;

  // The memory of an operand in a run of that parity.
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

// The units of a plan as `rank` holds them. `backend` outlives them.
std::vector<fsdp::UnitShard> MakeUnits(const plan::JobPlan& plan, int rank, Backend& backend);

// By unit, the weights and, unless it is frozen, the moments. All programs have them at the same addresses.
std::vector<fsdp::StateMemory> StatesOf(const plan::JobPlan& plan, const StageMemory& memory);

// What Snapshots copy: sources and destinations. Requires memory.saves().
std::vector<checkpoint::CopiedMemory> SavedOf(const plan::JobPlan& plan, const StageMemory& memory);

// The states that checkpoints hold besides the units, by Hugging Face name: those that are updated once a
// step. One function is for the plan's stage, the other has the names of all stages. Their counters are zeros
// whenever a checkpoint is saved.
std::vector<std::string> UpdatedStateNames(const plan::JobPlan& plan);
std::vector<checkpoint::WholeArray> UpdatedStatesOf(const plan::JobPlan& plan, const StageMemory& memory);

// The memory of its machine that a rank wants in addition, and the memory that the machine has left.
struct HostRoom {
  std::string host;
  int64_t wanted = 0;     // in bytes
  int64_t available = 0;  // in bytes, before any rank has taken what it wants
};

std::string ToText(const HostRoom& room);

// `texts` has ToText of every rank. Names the first machine that has no room for what all its ranks want,
// with a tenth of its available memory to spare, and says why. Empty if all machines have room.
std::string WhyNoRoom(const std::vector<std::string>& texts);

// Pinned memory of the host, or the reason why no rank has it.
struct SharedRoom {
  std::shared_ptr<device::Region> region;
  std::string refused;
};

// Collective. Reserves `bytes` on this rank's machine `host` if every machine has room for what all its ranks
// want and every rank can reserve its own; otherwise the memory is null on all ranks. Throws CommError.
SharedRoom ReserveTogether(comm::Communicator& comm, device::Device& device, const std::string& host,
                           int64_t wanted, int64_t bytes);

}  // namespace tandem::trainer
