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

// The memory of one rank. The size of the arena is exact to the byte and depends only on the programs: the
// trainer allocates StagePrograms::arena_bytes once, before the first step, and nothing later.

struct MemoryPlan {
  schedules::BytesByKind persistent{};  // buffers that live as long as the job; rings with both elements
  int64_t persistent_bytes = 0;         // up to the first local, with alignment
  // The most bytes of locals that are alive at once, within the budget (MostBytesAlive), but not more than
  // the locals' addresses take. These may take fewer: a buffer that one instruction does not know to have
  // ended may already share its bytes with another buffer, whose instructions know it.
  int64_t alive_bytes = 0;
  int64_t budget_bytes = 0;
  int64_t least_budget_bytes = 0;    // no waits can keep the locals within a smaller budget
  int64_t default_budget_bytes = 0;  // with it, communication can overlap (Budgets::by_default)
  int64_t gap_bytes = 0;  // address space of locals beyond alive_bytes: alignment, and gaps between addresses
  int64_t arena_bytes = 0;  // persistent_bytes + alive_bytes + gap_bytes
  int64_t host_bytes = 0;   // pinned host memory, without saved_bytes
  // Pinned host memory for the copies from which checkpoints are written, if the machine has enough.
  int64_t saved_bytes = 0;
  // The most host memory that writing or reading a checkpoint needs: one part of a file, and copies of frozen
  // units whose type differs from the checkpoint's. 0 if the job has no checkpoints.
  int64_t checkpoint_bytes = 0;
};

MemoryPlan PlanMemory(const JobPlan& plan);

// What a rank takes of its machine's memory: pinned memory and, on CPUs, its arena.
int64_t HostBytesWanted(const schedules::StagePrograms& stage, model::DeviceKind device);

// The most of a machine's available memory that its ranks may take together if checkpoints are to be written
// while training continues. A tenth is kept free.
inline int64_t MostHostBytes(int64_t available) { return available - available / 10; }

// What the ranks of a plan take of one machine's memory together.
struct MachineMemory {
  int ranks = 0;             // as many of the job's ranks as one machine has
  int64_t wanted_bytes = 0;  // HostBytesWanted
  int64_t saved_bytes = 0;   // the part of it that copies for checkpoints take
  int64_t needed_bytes = 0;  // available memory that these copies need by MostHostBytes
};

// Assumes that a machine has as many of the job's ranks as resources.ranks_per_worker and the profile's link
// allow.
MachineMemory PlanMachineMemory(const JobPlan& plan, const schedules::DeviceProfile& profile);

// The device memory of CUDA graphs by the profile, rounded up to the pieces in which the driver allocates. 0
// if the job has no graphs or the profile does not know.
int64_t GraphBytes(const JobPlan& plan, const schedules::DeviceProfile& profile);

// The device memory of a rank outside its arena, by the profile: the context with its modules, communicators
// of several ranks, and graphs. 0 if the profile does not know.
int64_t OutsideBytes(const JobPlan& plan, const schedules::DeviceProfile& profile);

}  // namespace tandem::plan
