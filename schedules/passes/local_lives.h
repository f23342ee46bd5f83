#pragma once

#include <cstdint>
#include <vector>

#include "schedules/program/program.h"

namespace tandem::schedules {

// A program's locals on the device, in issue order: what the memory waits and budgets count. Addresses are
// multiples of the alignment, so that is what a buffer costs.
struct LocalLife {
  int first = -1;  // instructions that touch it
  int last = -1;
  int64_t bytes = 0;
};

// Per buffer; bytes 0: it is not counted.
std::vector<LocalLife> LocalLives(const Program& program);

// Calls visit(buffer) for each buffer of the instruction's operands, once.
template <typename Visit>
void ForEachBuffer(const Instruction& instruction, Visit visit) {
  const std::vector<Operand>& operands = instruction.operands;
  for (size_t k = 0; k < operands.size(); ++k) {
    bool before = false;
    for (size_t j = 0; j < k && !before; ++j) {
      before = operands[j].buffer == operands[k].buffer;
    }
    if (!before) {
      visit(operands[k].buffer);
    }
  }
}

}  // namespace tandem::schedules
