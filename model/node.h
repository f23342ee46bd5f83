#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "model/bound_pass.h"
#include "model/config.h"

namespace at {
class Tensor;
}

namespace tandem::device {
class Arena;
}

namespace tandem::ops {
class Operations;
}

namespace tandem::model {

// What one instruction of the first step program (schedules_v1) hands its node: arrays of tensors in the
// order of the node's Access lists in the outline (reads[i] belongs to Access::reads[i], and so on). The
// executor owns the arrays and keeps them alive until the instruction has run; the tensors are views of the
// arena and of slots.
struct NodeCall {
  Pass pass = Pass::kForward;
  const at::Tensor* reads = nullptr;
  at::Tensor* writes = nullptr;  // Prepare fills them
  const at::Tensor* gradient_reads = nullptr;
  at::Tensor* gradient_writes = nullptr;  // Prepare fills those that are undefined
  const bool* add_gradient = nullptr;     // per gradient_writes: add to what is there
  // Per UnitPart, one array with a tensor per item of that part, in layout order, shaped as the item.
  const at::Tensor* const* parameters = nullptr;
  at::Tensor* const* parameter_gradients = nullptr;
  const bool* add_parameter_gradient = nullptr;  // per UnitPart
  at::Tensor* scratch = nullptr;  // one byte tensor [Access::scratch.bound]; Prepare allocates it
};

// The code of one outline node. Stateless between calls but for constants (rotary tables); one object serves
// all microbatches. Thread-safe. All methods throw on a bug.
class Node {
 public:
  virtual ~Node() = default;

  // One pass on memory at fixed addresses, to be called as often as the instruction runs. `operands` are
  // those of the instruction, in its order (Instruction in schedules/program/program.h). A recompute takes as
  // many as the forward; `begin` is null for a write that was kept. Throws std::logic_error for a pass that
  // the node does not have and for operands that are not what its declaration says. The node outlives what it
  // returns.
  virtual BoundPass Bind(Pass pass, absl::Span<const OperandMemory> operands) const = 0;

  // On the issuing thread: allocates what the pass writes, and its scratch, from the arena, in the order
  // writes, gradient_writes, scratch. Never reads a tensor's elements.
  virtual void Prepare(NodeCall& call, device::Arena& arena) const = 0;

  // On the node's stream, gradients disabled: kernels only, no allocation that outlives the call.
  virtual void Run(const NodeCall& call) const = 0;
};

// The code for DecoderOutline(config, batch, type, ...), one per outline node in the same order, on the kind
// of device that `ops`, which outlives them, computes on.
std::vector<std::unique_ptr<Node>> DecoderNodes(const DecoderConfig& config, BatchShape batch,
                                                ComputeType type, const ops::Operations& ops);

}  // namespace tandem::model
