// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/job_plan.h"
#include "schedules/simulate/device_profile.h"
#include "schedules/simulate/memory_curve.h"
#include "schedules/simulate/timeline.h"

namespace tandem::plan {

// What one rank's memory holds. The arena is exact, to the byte, and follows from the programs alone: the
// trainer allocates StagePrograms::arena_bytes once, before the first step, and nothing after it.

struct MemoryPlan {
  schedules::BytesByKind persistent{};  // buffers that live as long as the job, rings with both elements
  int64_t persistent_bytes = 0;         // up to the first local, so with their alignment
  // Locals that are alive at once as far as the program knows, at most: within the budget, and no more than
  // the addresses that they have (what one instruction must take to be alive may share bytes, as others
  // know).
  int64_t alive_bytes = 0;
  int64_t budget_bytes = 0;
  int64_t least_budget_bytes = 0;    // below it no order of waits fits
  int64_t default_budget_bytes = 0;  // lets communication overlap
  int64_t gap_bytes = 0;    // locals' address space beyond alive_bytes: alignment, and gaps between addresses
  int64_t arena_bytes = 0;  // persistent_bytes + alive_bytes + gap_bytes
  int64_t host_bytes = 0;   // pinned, on the host, beside the arena
  // Pinned, on the host: the copies that checkpoints are written from, where the machine has room for them.
  int64_t saved_bytes = 0;
  // On the host while a checkpoint is written or read, at most: what is in memory of a file, and of frozen
  // units that hold another type than checkpoints do. 0 where the job has none.
  int64_t checkpoint_bytes = 0;
};

MemoryPlan PlanMemory(const JobPlan& plan);

// What a rank takes of its machine's memory: what is pinned, and on CPUs its arena.
int64_t HostBytesWanted(const schedules::StagePrograms& stage, model::DeviceKind device);

// How much of the memory that a machine has available its ranks may take together, if checkpoints are to be
// written beside training: a tenth is spared.
inline int64_t MostHostBytes(int64_t available) { return available - available / 10; }

// What ranks like the plan's take of the memory of one machine together.
struct MachineMemory {
  int ranks = 0;             // as many as a machine has of the job
  int64_t wanted_bytes = 0;  // HostBytesWanted
  int64_t saved_bytes = 0;   // of these, the copies that checkpoints are written from
  int64_t needed_bytes = 0;  // must be available there for these copies, by MostHostBytes
};

// A machine has as many ranks as resources.ranks_per_worker allows and the profile's link reaches.
MachineMemory PlanMachineMemory(const JobPlan& plan, const schedules::DeviceProfile& profile);

// What CUDA graphs take of the device, by the profile, in the pieces that its driver takes memory in. 0 where
// the job has none, or the profile does not know.
int64_t GraphBytes(const JobPlan& plan, const schedules::DeviceProfile& profile);

// What the device holds of a rank beside its arena, by the profile: the context with its modules, every
// communicator of several ranks, and graphs. 0 where the profile does not know.
int64_t OutsideBytes(const JobPlan& plan, const schedules::DeviceProfile& profile);

}  // namespace tandem::plan
