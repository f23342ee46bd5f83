#include "plan/memory.h"

#include <algorithm>
#include <map>

#include "schedules_v1/block_allocator.h"

namespace tandem::plan {
namespace {

constexpr char kWeights[] = "weights";
constexpr char kGradients[] = "gradients";
constexpr char kOptimizer[] = "optimizer";
constexpr char kParameterSlots[] = "parameter slots";
constexpr char kGradientSlots[] = "gradient slots";
constexpr char kStaging[] = "staging";

void AddSlots(const std::string& prefix, const char* category, const std::vector<int64_t>& bytes,
              const std::vector<int>& counts, std::vector<Buffer>& buffers) {
  for (size_t size_class = 0; size_class < counts.size(); ++size_class) {
    for (int index = 0; index < counts[size_class]; ++index) {
      buffers.push_back(
          {prefix + std::to_string(size_class) + "." + std::to_string(index), category, bytes[size_class]});
    }
  }
}

}  // namespace

std::vector<Buffer> PersistentBuffers(const JobPlan& plan) {
  std::vector<Buffer> buffers;
  const int element_bytes = model::ElementBytes(plan.compute);
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    const int64_t shard = fsdp::ShardElements(plan.layouts[unit], plan.train.ranks) * element_bytes;
    const std::string& name = plan.units[unit].name;
    buffers.push_back({name + ".weights", kWeights, shard});
    buffers.push_back({name + ".gradients", kGradients, shard});
    buffers.push_back({name + ".exp_avg", kOptimizer, shard});
    buffers.push_back({name + ".exp_avg_sq", kOptimizer, shard});
  }
  const schedules_v1::Program& program = plan.train_program;
  AddSlots("slots.parameters.", kParameterSlots, program.parameter_slot_bytes, program.parameter_slots,
           buffers);
  AddSlots("slots.gradients.", kGradientSlots, program.gradient_slot_bytes, program.gradient_slots, buffers);
  int64_t staging = 0;
  for (const int64_t bytes : program.gradient_slot_bytes) {
    staging = std::max(staging, bytes);
  }
  buffers.push_back({"reduce.staging", kStaging, staging});
  return buffers;
}

MemoryPlanV1 PlanMemoryV1(const JobPlan& plan) {
  MemoryPlanV1 memory;
  std::vector<int64_t> sizes;
  std::map<std::string, int64_t> totals;
  schedules_v1::BlockAllocator blocks;
  for (const Buffer& buffer : PersistentBuffers(plan)) {
    sizes.push_back(buffer.bytes);
    totals[buffer.category] += buffer.bytes;
    blocks.Allocate(buffer.bytes);
  }
  memory.persistent_bytes = blocks.in_use();

  memory.train = schedules_v1::ReplayMemory(plan.outline_v1, plan.train_program, sizes);
  memory.arena_bytes = memory.train.peak_bytes;
  const schedules_v1::MemoryCurve* largest = &memory.train;
  if (!plan.validate_program.instructions.empty()) {
    memory.validate = schedules_v1::ReplayMemory(plan.outline_v1, plan.validate_program, sizes);
    memory.arena_bytes = std::max(memory.arena_bytes, memory.validate.peak_bytes);
    if (memory.validate.peak_in_use > memory.train.peak_in_use) {
      largest = &memory.validate;
    }
  }

  memory.rounding_bytes = memory.arena_bytes;
  const auto add = [&](const std::string& category, int64_t bytes) {
    memory.categories.push_back({category, bytes});
    memory.rounding_bytes -= bytes;
  };
  for (const char* category : {kWeights, kGradients, kOptimizer, kParameterSlots, kGradientSlots, kStaging}) {
    add(category, totals[category]);
  }
  add("activations", largest->peak.activations);
  add("activation gradients", largest->peak.gradients);
  add("scratch", largest->peak.scratch);
  return memory;
}

}  // namespace tandem::plan
