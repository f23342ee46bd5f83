// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/parameter_arrays.h"
#include "checkpoint/shard_copies.h"
#include "device/memory.h"
#include "device/static_arena.h"
#include "fsdp/unit_shard.h"
#include "model/config.h"
#include "schedules/program/program.h"

namespace tandem::device {
class Device;
class Region;
}  // namespace tandem::device

namespace tandem::plan {
struct JobPlan;
}

namespace tandem::trainer {

class Backend;

// The memory of one rank's programs: the arena and the pinned host memory, as large as the programs say, and
// where each buffer lies in them. A buffer has one address, the same in every run. Immutable after
// construction.
class StageMemory {
 public:
  // arena: stage.arena_bytes of `device`, which outlives it. Persistent buffers start as zeros.
  // fill_with_nan: the arena above them holds NaN until it is written (tests). saved: of the host, for
  // what Snapshots write; null: they have no place, and train_save cannot run. Throws device::OutOfMemory.
  StageMemory(const schedules::StagePrograms& stage, device::Device& device,
              std::shared_ptr<device::Region> arena, bool fill_with_nan,
              std::shared_ptr<device::Region> saved = nullptr);

  // Where a buffer lies: in the device's memory, or in the host's for host kinds. element: of a ring, 0 or 1.
  device::Memory At(const schedules::Buffer& buffer, int element = 0) const;

  // Where an operand lies in a run of that parity.
  device::Memory At(const schedules::Program& program, const schedules::Operand& operand, int parity) const;

  // Whether there is a place for what Snapshots write.
  bool saves() const { return saved_.has_value(); }

  device::Memory arena() const { return arena_.all(); }
  const std::shared_ptr<device::Region>& region() const { return arena_.region(); }

 private:
  const device::StaticArena arena_;
  const device::StaticArena host_;  // pinned where that matters, zero at the start
  const int64_t saved_at_;          // its bytes; from there on addresses are in saved_
  std::optional<const device::StaticArena> saved_;
};

// The units of a plan as `rank` holds them. `backend` outlives them.
std::vector<fsdp::UnitShard> MakeUnits(const plan::JobPlan& plan, int rank, Backend& backend);

// Weights, and moments unless it is frozen, of each unit, which every program has at the same addresses.
std::vector<fsdp::StateMemory> StatesOf(const plan::JobPlan& plan, const StageMemory& memory);

// What Snapshots copy, from and to where. Requires memory.saves().
std::vector<checkpoint::CopiedMemory> SavedOf(const plan::JobPlan& plan, const StageMemory& memory);

// What checkpoints hold beside the units: the states that are updated once a step, by Hugging Face name; of
// the plan's stage, and the names of all stages'. Their counters are zeros whenever one is saved.
std::vector<std::string> UpdatedStateNames(const plan::JobPlan& plan);
std::vector<checkpoint::WholeArray> UpdatedStatesOf(const plan::JobPlan& plan, const StageMemory& memory);

}  // namespace tandem::trainer
