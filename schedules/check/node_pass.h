// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "schedules/check/symbols.h"
#include "schedules/program/pass_operand.h"

namespace tandem::schedules {

// Where a pass of a node finds what it reads and puts what it writes: the values of one microbatch in the
// reference, the operands of an instruction in a program.
class PassMemory {
 public:
  virtual ~PassMemory() = default;
  virtual Symbol Read(const PassOperand& what) = 0;
  // Writes the operand; its mode says whether a gradient or a state is overwritten or added to.
  virtual void Write(const PassOperand& what, Symbol symbol) = 0;
};

// What a pass makes of what it reads: one symbol for each thing that it writes, made of the node, the pass,
// its place, and all that this pass reads. A Recompute is the Forward. number: the node's in the undivided
// outline.
void RunPass(Symbols& symbols, const Node& node, NodeId number, Opcode pass, int microbatch,
             PassMemory& memory);

// "layers.0.mlp.hidden": the name of what a pass reads as its argument-th.
std::string ArgumentName(const Outline& outline, NodeId node, Opcode opcode, int argument);

}  // namespace tandem::schedules
