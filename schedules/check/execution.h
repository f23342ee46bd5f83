// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "schedules/check/symbols.h"
#include "schedules/program/cells.h"
#include "schedules/program/program.h"
#include "schedules/program/stages.h"

namespace tandem::schedules {

// Executes one run of a stage's program on symbols. The program must be formed. Symbols use the numbers of
// the undivided outline, so that all stages can share one table.
class Execution {
 public:
  // The cells of locals start with garbage (SymbolOp::kGarbage), cell c with number first_garbage + c.
  Execution(const Stage& stage, const Program& program, Symbols& symbols, int first_garbage);

  // Executes an instruction that needs no other stage, that is, any except a send, receive or norm. The
  // caller may execute instructions in any order that streams and waits allow.
  void Run(const Instruction& instruction);

  Symbol Sent(const Instruction& send) { return Read(send.operands.front()); }
  void Receive(const Instruction& receive, Symbol symbol) { Write(receive.operands.front(), symbol); }

  // Reads the operands of a norm: terms with their units, and inputs.
  void ReadNorm(const Instruction& norm, std::vector<std::pair<UnitId, Symbol>>& terms,
                std::vector<Symbol>& inputs);
  void EndNorm(const Instruction& norm, Symbol outcome);

  const Cells& cells() const { return cells_; }
  // The content of a cell at the end of the run.
  Symbol cell(int cell) const { return state_[cell]; }

  // The number, in the undivided outline, of the unit, state or value that the buffer holds.
  int SubjectOf(const Buffer& buffer) const;

 private:
  class PassOperands;

  Symbol Read(const Operand& operand);
  // The content of one part of a unit, also if the operand's buffer is not divided into parts.
  Symbol ReadPart(const Operand& operand, const UnitPart& part);
  void Write(const Operand& operand, Symbol symbol);
  void WriteGarbage(const Operand& operand);
  // Overwrites the cells of the operand or adds to them, as its mode says.
  void WriteOrAdd(const Operand& operand, Symbol symbol);
  void Copy(const std::vector<Operand>& operands);
  void Reduce(const Instruction& instruction);
  void UpdateStates(const Instruction& in);
  void Optimize(const Instruction& instruction);

  // Whether the operand's buffer has several parts. A single part is the same as the whole buffer.
  bool IsDivided(const Operand& operand) const {
    return operand.part < 0 && program_.buffers[operand.buffer].parts.size() > 1;
  }

  const Outline& outline_;
  const Origin& origin_;
  const Program& program_;
  Symbols& symbols_;
  const Cells cells_;
  const int first_garbage_;
  std::vector<Symbol> state_;  // one for each cell
  std::vector<Symbol> scratch_;
};

}  // namespace tandem::schedules
