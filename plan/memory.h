#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/job_plan.h"
#include "schedules_v1/memory.h"

namespace tandem::plan {

// What one rank's arena holds, to the byte. The trainer allocates PersistentBuffers in their order, once,
// before the first step, and then what the programs say; so the planned peak is the measured one.

// A buffer that lives as long as the job.
struct Buffer {
  std::string name;  // "layers.0.weights", "slots.parameters.0.1" (class, index), "reduce.staging"
  std::string
      category;  // "weights", "gradients", "optimizer", "parameter slots", "gradient slots", "staging"
  int64_t bytes = 0;
  bool operator==(const Buffer&) const = default;
};

// In allocation order: per unit the shards weights, gradients, exp_avg, exp_avg_sq; then the parameter slots
// (class by class, by index), the gradient slots likewise, then "reduce.staging", as large as the largest
// gradient slot. The programs of a plan have the same slots.
std::vector<Buffer> PersistentBuffers(const JobPlan& plan);

struct CategoryBytes {
  std::string category;  // those of Buffer, then "activations", "activation gradients", "scratch"
  int64_t bytes = 0;     // as asked for; persistent ones in all, the others at the peak
};

struct MemoryPlanV1 {
  int64_t arena_bytes =
      0;  // BlockAllocator::peak() over the training and the validation program: what the arena holds
  int64_t persistent_bytes = 0;  // of PersistentBuffers, rounded as the allocator rounds
  std::vector<CategoryBytes> categories;
  int64_t rounding_bytes = 0;  // arena_bytes minus the categories: alignment and fragmentation
  schedules_v1::MemoryCurve train;
  schedules_v1::MemoryCurve validate;  // empty where the job never validates
};

MemoryPlanV1 PlanMemoryV1(const JobPlan& plan);

}  // namespace tandem::plan
