// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "device/element_kind.h"
#include "model/config.h"

namespace tandem::comm {
class Communicator;
}
namespace tandem::ops {
class Operations;
}  // namespace tandem::ops

namespace tandem::model {

struct NodeContext;

// The trainer gives a node its memory once, when it binds a program: the tensors of a declaration have fixed
// addresses in the arena. The node binds its operations to these addresses (ops/call.h); a pass runs the
// bound calls in order. Every decision is made at binding, so that a running pass only launches kernels.
// Kernels read from memory what changes from step to step.

device::ElementKind ElementKindOf(ComputeType type);

enum class Pass : uint8_t { kForward, kRecompute, kBackwardInput, kBackwardWeight };

const char* ToText(Pass pass);  // "backward input"

// The memory of one operand, valid as long as the bound pass is.
struct OperandMemory {
  char* begin = nullptr;  // in the device's memory
  int64_t bytes = 0;      // an upper bound if the size is dynamic
  bool adds = false;      // for a gradient: the pass adds to it instead of overwriting it
  // For a part of a unit: the address of each of its parameters, in layout order.
  std::vector<char*> parameters;
  ComputeType type = ComputeType::kFp32;  // element type of these parameters
};

// Runs the pass on the current stream: kernels and collectives only, no allocation that outlives the call.
using BoundPass = std::function<void()>;

// The code of one node of an outline. Between calls it keeps only constants (rotary tables), so one object
// serves all microbatches. Thread-safe. All methods throw std::logic_error for a bug of the caller.
class Node {
 public:
  virtual ~Node() = default;

  // Binds one pass to memory at fixed addresses. The returned function is called each time the instruction
  // runs.
  //
  // `operands` are those of the instruction, in its order (Instruction in schedules/program/program.h). A
  // recompute and a validation get as many operands as a forward in training; `begin` is null for operands
  // that they do not touch (a kept output, a state, a gradient). `communicator` is the instruction's, or null
  // if the instruction has none; it must outlive the returned pass. Throws std::logic_error if the node does
  // not have the pass, or if the operands differ from its declaration. The node must outlive the returned
  // pass.
  virtual BoundPass Bind(Pass pass, absl::Span<const OperandMemory> operands,
                         comm::Communicator* communicator) const = 0;
};

// For each kind, the function that makes its nodes.
using NodeMakers = std::map<const NodeKind*, std::function<std::unique_ptr<Node>(const NodeContext&)>>;

// Makes the nodes of DecoderOutline(config, batch, precision, ...), one for each node of the outline and in
// the same order, for the kind of device of `ops`. `ops` must outlive them. `more` has the makers of kinds
// that are not in model/.
std::vector<std::unique_ptr<Node>> DecoderNodes(const DecoderConfig& config, BatchShape batch,
                                                const Precision& precision, const ops::Operations& ops,
                                                const NodeMakers& more = {});

}  // namespace tandem::model
