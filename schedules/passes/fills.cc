// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "schedules/passes/live_locals.h"
#include "schedules/passes/passes.h"

namespace tandem::schedules {

void InsertFills(Program& program) {
  const int num_instructions = static_cast<int>(program.instructions.size());
  const std::vector<LocalLife> lives = LocalLives(program);
  std::vector<std::vector<BufferId>> ends(num_instructions);
  for (BufferId id = 0; id < static_cast<int>(lives.size()); ++id) {
    if (lives[id].last >= 0) {
      ends[lives[id].last].push_back(id);
    }
  }
  std::vector<Instruction> result;
  std::vector<int> moved_to(num_instructions);
  for (int i = 0; i < num_instructions; ++i) {
    Instruction& instruction = program.instructions[i];
    for (Wait& wait : instruction.waits) {
      wait.instruction = moved_to[wait.instruction];
    }
    moved_to[i] = static_cast<int>(result.size());
    result.push_back(std::move(instruction));
    if (!ends[i].empty()) {
      Instruction fill{.opcode = Opcode::kFill, .stream = result.back().stream};
      for (const BufferId buffer : ends[i]) {
        fill.operands.push_back({.buffer = buffer, .mode = Mode::kWrites, .role = Role::kDead});
      }
      result.push_back(std::move(fill));
    }
  }
  program.instructions = std::move(result);
}

}  // namespace tandem::schedules
