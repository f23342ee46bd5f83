#pragma once

#include <string>

#include "schedules/check/symbols.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// Where a pass of a node finds what it reads and puts what it writes: the values of one microbatch in the
// reference, the operands of an instruction in a program.
class PassMemory {
 public:
  virtual ~PassMemory() = default;

  virtual Symbol Value(ValueId value) = 0;
  virtual Symbol Gradient(ValueId value) = 0;
  virtual Symbol Parameter(const UnitPart& part) = 0;
  virtual Symbol State(StateId state) = 0;
  virtual Symbol Inputs() = 0;

  virtual void WriteValue(ValueId value, Symbol symbol) = 0;
  // Overwrites or adds.
  virtual void WriteGradient(ValueId value, Symbol symbol) = 0;
  virtual void WriteParameterGradient(const UnitPart& part, Symbol symbol) = 0;
  virtual void AddState(StateId state, Symbol symbol) = 0;
};

// What a pass makes of what it reads: one symbol for each thing that it writes, made of the node, the pass,
// its place, and all that this pass reads. A whole Backward is its halves composed, where the node has
// halves; a Recompute is the Forward.
void RunPass(Symbols& symbols, const Outline& outline, NodeId node, Opcode opcode, int microbatch,
             PassMemory& memory);

// "layers.0.mlp.hidden": the name of what a pass reads as its argument-th.
std::string ArgumentName(const Outline& outline, NodeId node, Opcode opcode, int argument);

}  // namespace tandem::schedules
