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

// The trainer gives a node its memory once, when it binds a program: what a declaration lists lies at fixed
// addresses of the arena, the node binds its operations to them (ops/call.h), and a pass is these calls in
// order. What is known when a pass is bound is decided then; nothing is left for when it runs but to launch
// kernels. What changes by step is in the memory that they read.

device::ElementKind ElementKindOf(ComputeType type);

enum class Pass : uint8_t { kForward, kRecompute, kBackwardInput, kBackwardWeight };

const char* ToText(Pass pass);  // "backward input"

// The memory of one operand, valid as long as the bound pass is.
struct OperandMemory {
  char* begin = nullptr;  // in the device's memory
  int64_t bytes = 0;      // the upper bound if the size is dynamic
  bool adds = false;      // for a gradient: add to it instead of overwriting it
  // For a part of a unit: where each of its parameters begins, in layout order.
  std::vector<char*> parameters;
  ComputeType type = ComputeType::kFp32;  // of these parameters' elements
};

// Runs the pass on the current stream: kernels and collectives only, no allocation that outlives the call.
using BoundPass = std::function<void()>;

// The code of one outline node. It has no state between calls except constants (rotary tables); one object
// serves all microbatches. Thread-safe. All methods throw on a bug.
class Node {
 public:
  virtual ~Node() = default;

  // Returns one pass on memory at fixed addresses, to be called each time the instruction runs. `operands`
  // are those of the instruction, in its order (Instruction in schedules/program/program.h). A recompute and
  // a validation get as many operands as a forward in training; `begin` is null for operands that they do not
  // touch (a kept write, a state, a gradient). communicator: the instruction's, which outlives the pass; null
  // if it has none. Throws std::logic_error for a pass that the node does not have, and for operands that
  // differ from its declaration. The node must outlive the returned pass.
  virtual BoundPass Bind(Pass pass, absl::Span<const OperandMemory> operands,
                         comm::Communicator* communicator) const = 0;
};

// Makes the code of the nodes of each kind.
using NodeMakers = std::map<const NodeKind*, std::function<std::unique_ptr<Node>(const NodeContext&)>>;

// The nodes of DecoderOutline(config, batch, precision, ...): one per outline node, in the same order, for
// the kind of device of `ops`, which must outlive them. more: makers of kinds that are not model/'s own.
std::vector<std::unique_ptr<Node>> DecoderNodes(const DecoderConfig& config, BatchShape batch,
                                                const Precision& precision, const ops::Operations& ops,
                                                const NodeMakers& more = {});

}  // namespace tandem::model
