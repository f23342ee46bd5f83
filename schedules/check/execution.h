// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "schedules/check/symbols.h"
#include "schedules/program/build_options.h"
#include "schedules/program/cells.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// One run of a program that is formed, on symbols, in issue order.
class Execution {
 public:
  Execution(const Outline& outline, const BuildOptions& options, const Program& program, Symbols& symbols);

  void Run();

  const Cells& cells() const { return cells_; }
  // What a cell holds in the end.
  Symbol cell(int cell) const { return state_[cell]; }

  // What went to other stages: (value, gradient, microbatch) -> symbols, in issue order.
  using Sent = std::map<std::tuple<ValueId, bool, int>, std::vector<Symbol>>;
  const Sent& sent() const { return sent_; }

 private:
  class PassOperands;

  Symbol Read(const Operand& operand);
  // The part of a unit that an operand holds, also where nothing divides its buffer.
  Symbol ReadPart(const Operand& operand, const UnitPart& part);
  void Write(const Operand& operand, Symbol symbol);
  void WriteGarbage(const Operand& operand);
  // Over what is there or to it, as the operand says.
  void WriteOrAdd(const Operand& operand, Symbol symbol);
  void RunInstruction(const Instruction& instruction);
  void Copy(const std::vector<Operand>& operands);
  void Exchange(const Instruction& instruction);
  void Reduce(const Instruction& instruction);
  void UpdateStates(const Instruction& in);
  void Optimize(const Instruction& instruction);

  // The only part of a buffer is the whole.
  bool IsDivided(const Operand& operand) const {
    return operand.part < 0 && program_.buffers[operand.buffer].parts.size() > 1;
  }

  const Outline& outline_;
  const BuildOptions& options_;
  const Program& program_;
  Symbols& symbols_;
  const Cells cells_;
  std::vector<Symbol> state_;  // per cell
  Sent sent_;
  std::vector<Symbol> scratch_;
};

}  // namespace tandem::schedules
