#pragma once

#include <memory>
#include <vector>

#include "fsdp/sharded_unit.h"
#include "schedules_v1/program.h"

namespace at {
class Tensor;
}
namespace tandem::device {
class Arena;
class Device;
}  // namespace tandem::device
namespace tandem::plan {
struct JobPlan;
}

namespace tandem::trainer {

class Backend;

// One rank's arena and every buffer in it that lives as long as the rank: shards, slots, staging, in the
// order of plan::PersistentBuffers. The arena is exactly as large as plan::PlanMemoryV1 says.
// Used by the issuing thread while nothing runs; the tensors are then the streams'. `backend` outlives it.
class RankMemory {
 public:
  // poison: memory that nobody has written, or that was released, holds NaN (tests).
  RankMemory(const plan::JobPlan& plan, int rank, Backend& backend, bool poison);
  ~RankMemory();
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  device::Device& device();
  device::Arena& arena();
  std::vector<fsdp::ShardedUnit>& units();

  // 1-D of the compute type, as large as its class.
  const at::Tensor& Slot(schedules_v1::SlotRole role, int size_class, int index) const;

  // 1-D of the compute type, as large as the largest gradient slot.
  const at::Tensor& staging() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::trainer
