// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "model/bound_pass.h"
#include "model/config.h"

namespace tandem::comm {
class Communicator;
}
namespace tandem::ops {
class Operations;
}

namespace tandem::model {

// The code of one outline node. Stateless between calls but for constants (rotary tables); one object serves
// all microbatches. Thread-safe. All methods throw on a bug.
class Node {
 public:
  virtual ~Node() = default;

  // One pass on memory at fixed addresses, to be called as often as the instruction runs. `operands` are
  // those of the instruction, in its order (Instruction in schedules/program/program.h). A recompute and a
  // validation take as many as a forward in training; `begin` is null for what they leave alone: a write that
  // was kept, a state. communicator: the instruction's, which outlives the pass; null where it has none.
  // Throws std::logic_error for a pass that the node does not have and for operands that are not what its
  // declaration says. The node outlives what it returns.
  virtual BoundPass Bind(Pass pass, absl::Span<const OperandMemory> operands,
                         comm::Communicator* communicator) const = 0;
};

// The code for DecoderOutline(config, batch, precision, ...), one per outline node in the same order, on the
// kind of device that `ops`, which outlives them, computes on.
std::vector<std::unique_ptr<Node>> DecoderNodes(const DecoderConfig& config, BatchShape batch,
                                                const Precision& precision, const ops::Operations& ops);

}  // namespace tandem::model
