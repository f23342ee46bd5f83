// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "schedules/check/symbols.h"
#include "schedules/program/pass_operand.h"

namespace tandem::schedules {

// The memory that a pass of a node reads and writes. In the reference it is the values of one microbatch; in
// a program, the operands of an instruction.
class PassMemory {
 public:
  virtual ~PassMemory() = default;
  virtual Symbol Read(const PassOperand& what) = 0;
  // Writes the operand. Its mode says whether a gradient or a state is overwritten or added to.
  virtual void Write(const PassOperand& what, Symbol symbol) = 0;
};

// Writes the results of a pass: one symbol for each thing that it writes, made of the node, the pass, the
// place of the result, and everything that the pass reads. A Recompute counts as a Forward. `number` is the
// node's in the undivided outline.
void RunPass(Symbols& symbols, const Node& node, NodeId number, Opcode pass, int microbatch,
             PassMemory& memory);

// The name of the argument at that place of a pass: "layers.0.mlp.hidden".
std::string ArgumentName(const Outline& outline, NodeId node, Opcode opcode, int argument);

}  // namespace tandem::schedules
