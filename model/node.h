// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "model/config.h"

namespace c10 {
enum class ScalarType : int8_t;
}
namespace tandem::comm {
class Communicator;
}
namespace tandem::ops {
class Operations;
}

namespace tandem::model {

// How the trainer hands a node its memory: once, when a program is bound. A pass of a node is then a call on
// tensors at fixed addresses.

// LibTorch's name of a type of elements.
c10::ScalarType ScalarTypeOf(ComputeType type);

enum class Pass : uint8_t { kForward, kRecompute, kBackward, kBackwardInput, kBackwardWeight };

const char* ToText(Pass pass);  // "backward input"

// The memory of one operand, valid as long as the bound pass is.
struct OperandMemory {
  char* begin = nullptr;  // in the device's memory
  int64_t bytes = 0;      // the bound, where sizes are dynamic
  bool adds = false;      // a gradient: add to what is there instead of overwriting it
  // For an operand that is a part of a unit: where each of its parameters begins, in layout order.
  std::vector<char*> parameters;
  ComputeType type = ComputeType::kFp32;  // of these parameters' elements
};

// Runs the pass on the current stream: kernels only, no allocation that outlives the call, gradients
// disabled.
using BoundPass = std::function<void()>;

// The code of one outline node. Stateless between calls but for constants (rotary tables); one object serves
// all microbatches. Thread-safe. All methods throw on a bug.
class Node {
 public:
  virtual ~Node() = default;

  // One pass on memory at fixed addresses, to be called as often as the instruction runs. `operands` are
  // those of the instruction, in its order (Instruction in schedules/program/program.h). A recompute and a
  // validation take as many as a forward in training; `begin` is null for what they leave alone: a write that
  // was kept, a state, a gradient. communicator: the instruction's, which outlives the pass; null where it
  // has none. Throws std::logic_error for a pass that the node does not have and for operands that are not
  // what its declaration says. The node outlives what it returns.
  virtual BoundPass Bind(Pass pass, absl::Span<const OperandMemory> operands,
                         comm::Communicator* communicator) const = 0;
};

// The code for DecoderOutline(config, batch, precision, ...), one per outline node in the same order, on the
// kind of device that `ops`, which outlives them, computes on.
std::vector<std::unique_ptr<Node>> DecoderNodes(const DecoderConfig& config, BatchShape batch,
                                                const Precision& precision, const ops::Operations& ops);

}  // namespace tandem::model
