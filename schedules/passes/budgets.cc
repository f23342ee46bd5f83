// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>
#include <utility>

#include "schedules/passes/live_locals.h"
#include "schedules/passes/passes.h"

namespace tandem::schedules {
namespace {

// A collective that yields what the stream's next one need not wait for: all but gathers, whose result lives
// until its last reader anyway.
bool MayLag(const Instruction& instruction) {
  return instruction.communicator >= 0 && instruction.opcode != Opcode::kUnshard &&
         instruction.opcode != Opcode::kUnshardOuter;
}

bool IsExchange(const Instruction& instruction) {
  return instruction.opcode == Opcode::kSend || instruction.opcode == Opcode::kReceive;
}

// Keeps what the instructions that `keeps` picks touch alive until the next one of their stream is issued; if
// there is none, until the norm, but between stages until the end.
template <typename Keeps>
void Prolong(const Program& program, Keeps keeps, std::vector<LocalLife>& lives) {
  const int num_instructions = static_cast<int>(program.instructions.size());
  std::vector<int> next(program.streams.size(), num_instructions);
  int norm = num_instructions;
  for (int i = num_instructions - 1; i >= 0; --i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.opcode == Opcode::kGradientNorm) {
      norm = i;
    }
    if (!keeps(instruction)) {
      continue;
    }
    const int following = next[instruction.stream];
    const int end = (IsExchange(instruction) ? following : std::min(following, norm)) - 1;
    for (const Operand& operand : instruction.operands) {
      lives[operand.buffer].last = std::max(lives[operand.buffer].last, end);
    }
    next[instruction.stream] = i;
  }
}

// Largest sum of bytes of the lives [first, last] that hold one instruction, and where.
std::pair<int64_t, int> Peak(const std::vector<LocalLife>& lives, size_t num_instructions) {
  std::vector<int64_t> change(num_instructions + 1, 0);
  for (const LocalLife& life : lives) {
    if (life.bytes > 0) {
      change[life.first] += life.bytes;
      change[life.last + 1] -= life.bytes;
    }
  }
  int64_t alive = 0;
  std::pair<int64_t, int> peak = {0, -1};
  for (size_t i = 0; i < num_instructions; ++i) {
    alive += change[i];
    if (alive > peak.first) {
      peak = {alive, static_cast<int>(i)};
    }
  }
  return peak;
}

}  // namespace

Budgets BudgetsOf(const Program& program) {
  const size_t num_instructions = program.instructions.size();
  std::vector<LocalLife> lives = LocalLives(program);
  Budgets budgets;
  Prolong(program, IsExchange, lives);
  std::tie(budgets.least, budgets.least_at) = Peak(lives, num_instructions);
  Prolong(program, MayLag, lives);
  budgets.by_default = Peak(lives, num_instructions).first;
  return budgets;
}

}  // namespace tandem::schedules
