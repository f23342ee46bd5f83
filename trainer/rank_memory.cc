#include "trainer/rank_memory.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <stdexcept>
#include <utility>

#include "device/arena.h"
#include "device/device.h"
#include "plan/job_plan.h"
#include "plan/memory.h"
#include "trainer/backend.h"

namespace tandem::trainer {

struct RankMemory::State {
  State(device::Device& device, int64_t capacity, bool poison)
      : device(device), arena(device, capacity, poison) {}

  device::Device& device;
  device::Arena arena;
  std::vector<fsdp::ShardedUnit> units;
  std::vector<std::vector<at::Tensor>> slots[2];  // by role, class, index
  at::Tensor staging;
};

namespace {

c10::ScalarType TypeOf(model::ComputeType type) {
  switch (type) {
    case model::ComputeType::kFp32:
      return c10::ScalarType::Float;
    case model::ComputeType::kFp64:
      return c10::ScalarType::Double;
  }
  throw std::logic_error("a compute type that no arena holds");
}

// Hands out the plan's buffers one after the other.
class BufferReader {
 public:
  BufferReader(const plan::JobPlan& plan, device::Arena& arena)
      : buffers_(plan::PersistentBuffers(plan)),
        element_bytes_(model::ElementBytes(plan.compute)),
        type_(TypeOf(plan.compute)),
        arena_(arena) {}

  at::Tensor Next(const std::string& category) {
    if (next_ == buffers_.size() || buffers_[next_].category != category) {
      throw std::logic_error("the plan's buffers end before its " + category);
    }
    return arena_.Allocate({buffers_[next_++].bytes / element_bytes_}, type_);
  }

  void CheckEnd() const {
    if (next_ != buffers_.size()) {
      throw std::logic_error("the trainer knows no use for the plan's buffer " + buffers_[next_].name);
    }
  }

 private:
  const std::vector<plan::Buffer> buffers_;
  const int64_t element_bytes_;
  const c10::ScalarType type_;
  device::Arena& arena_;
  size_t next_ = 0;
};

std::vector<std::vector<at::Tensor>> ReadSlots(const std::vector<int>& counts, const std::string& category,
                                               BufferReader& reader) {
  std::vector<std::vector<at::Tensor>> slots(counts.size());
  for (size_t size_class = 0; size_class < counts.size(); ++size_class) {
    for (int i = 0; i < counts[size_class]; ++i) {
      slots[size_class].push_back(reader.Next(category));
    }
  }
  return slots;
}

}  // namespace

RankMemory::RankMemory(const plan::JobPlan& plan, int rank, Backend& backend, bool poison)
    : state_(std::make_unique<State>(backend.device(), plan::PlanMemoryV1(plan).arena_bytes, poison)) {
  BufferReader reader(plan, state_->arena);
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    at::Tensor weight = reader.Next("weights");
    at::Tensor gradient = reader.Next("gradients");
    at::Tensor exp_avg = reader.Next("optimizer");
    at::Tensor exp_avg_sq = reader.Next("optimizer");
    state_->units.emplace_back(plan.units[unit].name, plan.layouts[unit], plan.train.ranks, rank,
                               std::move(weight), std::move(gradient), std::move(exp_avg),
                               std::move(exp_avg_sq), backend.shard_work());
  }
  const schedules_v1::Program& program = plan.train_program;
  state_->slots[0] = ReadSlots(program.parameter_slots, "parameter slots", reader);
  state_->slots[1] = ReadSlots(program.gradient_slots, "gradient slots", reader);
  state_->staging = reader.Next("staging");
  reader.CheckEnd();
}

RankMemory::~RankMemory() = default;

device::Device& RankMemory::device() { return state_->device; }

device::Arena& RankMemory::arena() { return state_->arena; }

std::vector<fsdp::ShardedUnit>& RankMemory::units() { return state_->units; }

const at::Tensor& RankMemory::Slot(schedules_v1::SlotRole role, int size_class, int index) const {
  return state_->slots[role == schedules_v1::SlotRole::kParameters ? 0 : 1].at(size_class).at(index);
}

const at::Tensor& RankMemory::staging() const { return state_->staging; }

}  // namespace tandem::trainer
