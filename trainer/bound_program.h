#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "model/node.h"
#include "schedules_v1/program.h"

namespace at {
class Tensor;
}
namespace tandem::fsdp {
class ShardedUnit;
}
namespace tandem::plan {
struct JobPlan;
}

namespace tandem::trainer {

class RankMemory;

// One instruction with its tensors. The members that its opcode does not need are empty.
struct BoundInstruction {
  const schedules_v1::Instruction* instruction = nullptr;
  int index = -1;  // in the program

  // Passes of nodes. `call` points into the vectors below.
  const model::Node* node = nullptr;
  model::NodeCall call;
  std::vector<at::Tensor> reads;
  std::vector<at::Tensor> writes;
  std::vector<at::Tensor> gradient_reads;
  std::vector<at::Tensor> gradient_writes;
  std::unique_ptr<bool[]> add_gradient;
  std::vector<std::vector<at::Tensor>> parameters;  // per UnitPart, per item
  std::vector<std::vector<at::Tensor>> parameter_gradients;
  std::vector<const at::Tensor*> parameter_pointers;
  std::vector<at::Tensor*> parameter_gradient_pointers;
  std::unique_ptr<bool[]> add_parameter_gradient;
  std::vector<at::Tensor> scratch;  // one, or none where the pass needs no scratch

  // LoadBatch: of the tokens, int64 [B, S + 1].
  std::unique_ptr<device::PinnedBuffer> tokens;

  // Unshard, ReduceGradients: the slot, as large as the unit's gathered buffer; and for the second the
  // staging.
  fsdp::ShardedUnit* unit = nullptr;
  std::vector<at::Tensor> slot;
  std::vector<at::Tensor> staging;

  // Release, Reshard: what nobody reads any more, with its bytes to poison.
  std::vector<at::Tensor> dead;
};

// Consecutive work of one stream: nothing in it waits but its first instruction, and others wait for
// nothing in it but its last.
struct Segment {
  schedules_v1::StreamKind stream = schedules_v1::StreamKind::kCompute;
  std::vector<int> waits;  // indices of segments, of other streams
  bool awaited = false;
  std::vector<const BoundInstruction*> instructions;
};

// A program and the addresses that it runs at. Sizes are fixed and the arena's allocator is a function of the
// sequence of calls, so the addresses are the same in every step: they are worked out once, by going through
// the program as the issuing thread would, in its order and with the memory rule below; running it then
// allocates nothing.
//
// Memory rule, which plan::PlanMemory replays: at each instruction, in this order, every value that it
// writes, every gradient that it is the first to write, its scratch; then the scratch is free again. Release
// frees.
class BoundProgram {
 public:
  // `plan`, `nodes` and `memory` outlive it. Throws ArenaExhausted; std::logic_error where a value is left
  // in the arena at the end, or has no fixed size.
  BoundProgram(const schedules_v1::Program& program, const plan::JobPlan& plan,
               const std::vector<std::unique_ptr<model::Node>>& nodes, RankMemory& memory);
  ~BoundProgram();
  BoundProgram(const BoundProgram&) = delete;
  BoundProgram& operator=(const BoundProgram&) = delete;

  const schedules_v1::Program& program() const { return program_; }

  // In issue order.
  const std::vector<BoundInstruction>& instructions() const { return instructions_; }
  const std::vector<Segment>& segments() const { return segments_; }

  // Of the loss of each microbatch, one double, which is there until Report.
  const std::vector<std::unique_ptr<device::PinnedBuffer>>& losses() const { return losses_; }

 private:
  class Binder;

  void MakeSegments();

  const schedules_v1::Program& program_;
  std::vector<BoundInstruction> instructions_;
  std::vector<std::unique_ptr<device::PinnedBuffer>> losses_;
  std::vector<Segment> segments_;
};

}  // namespace tandem::trainer
