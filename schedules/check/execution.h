// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "schedules/check/symbols.h"
#include "schedules/program/cells.h"
#include "schedules/program/program.h"
#include "schedules/program/stages.h"

namespace tandem::schedules {

// One run of a stage's program that is formed, on symbols. What is numbered in the undivided outline has that
// number in symbols, so that those of all stages are of one table.
class Execution {
 public:
  // first_garbage: the number of the garbage in its first cell; those of its other cells follow.
  Execution(const Stage& stage, const Program& program, Symbols& symbols, int first_garbage);

  // Of instructions that wait for no other stage: all but sends, receives and norms. Any order that streams
  // and waits allow.
  void Run(const Instruction& instruction);

  Symbol Sent(const Instruction& send) { return Read(send.operands.front()); }
  void Receive(const Instruction& receive, Symbol symbol) { Write(receive.operands.front(), symbol); }

  // What a norm reads: terms with their units, and inputs.
  void ReadNorm(const Instruction& norm, std::vector<std::pair<UnitId, Symbol>>& terms,
                std::vector<Symbol>& inputs);
  void EndNorm(const Instruction& norm, Symbol outcome);

  const Cells& cells() const { return cells_; }
  // What a cell holds in the end.
  Symbol cell(int cell) const { return state_[cell]; }

  // Of what the buffer holds, in the undivided outline.
  int SubjectOf(const Buffer& buffer) const;

 private:
  class PassOperands;

  Symbol Read(const Operand& operand);
  // The part of a unit that an operand holds, also where nothing divides its buffer.
  Symbol ReadPart(const Operand& operand, const UnitPart& part);
  void Write(const Operand& operand, Symbol symbol);
  void WriteGarbage(const Operand& operand);
  // Over what is there or to it, as the operand says.
  void WriteOrAdd(const Operand& operand, Symbol symbol);
  void Copy(const std::vector<Operand>& operands);
  void Reduce(const Instruction& instruction);
  void UpdateStates(const Instruction& in);
  void Optimize(const Instruction& instruction);

  // The only part of a buffer is the whole.
  bool IsDivided(const Operand& operand) const {
    return operand.part < 0 && program_.buffers[operand.buffer].parts.size() > 1;
  }

  const Outline& outline_;
  const Origin& origin_;
  const Program& program_;
  Symbols& symbols_;
  const Cells cells_;
  const int first_garbage_;
  std::vector<Symbol> state_;  // per cell
  std::vector<Symbol> scratch_;
};

}  // namespace tandem::schedules
