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

// What the device holds of a rank beside its arena, by the profile: the context with its modules, and every
// communicator of several ranks. 0 where the profile does not know.
int64_t OutsideBytes(const JobPlan& plan, const schedules::DeviceProfile& profile);

}  // namespace tandem::plan
