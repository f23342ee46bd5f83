// SPDX-License-Identifier: Apache-2.0
#include "schedules/passes/live_locals.h"

namespace tandem::schedules {

std::vector<LocalLife> LocalLives(const Program& program) {
  std::vector<LocalLife> lives(program.buffers.size());
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    for (const Operand& operand : program.instructions[i].operands) {
      const Buffer& buffer = program.buffers[operand.buffer];
      if (buffer.life == Life::kLocal && !IsHost(buffer.kind)) {
        LocalLife& life = lives[operand.buffer];
        if (life.first < 0) {
          life = {.first = i, .bytes = RingStride(buffer)};
        }
        life.last = i;
      }
    }
  }
  return lives;
}

int64_t MostBytesAlive(const Program& program) {
  VectorClocks clocks(static_cast<int>(program.streams.size()));
  LiveLocals live(program);
  int64_t most = 0;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const Instruction& instruction = program.instructions[i];
    for (const Wait& wait : instruction.waits) {
      clocks.Wait(instruction.stream, wait.instruction);
    }
    if (const int64_t opens = live.Opens(i); opens > 0) {
      most = std::max(most, live.Alive(opens, live.Pending(clocks, instruction.stream)));
    }
    clocks.Issue(instruction);
    live.Issue(i);
  }
  return most;
}

}  // namespace tandem::schedules
