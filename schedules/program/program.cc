// SPDX-License-Identifier: Apache-2.0
#include "schedules/program/program.h"

namespace tandem::schedules {

int64_t RingStride(const Buffer& buffer) {
  return (buffer.bytes.bound + buffer.alignment - 1) / buffer.alignment * buffer.alignment;
}

int64_t ExtentOf(const Buffer& buffer) {
  return buffer.life == Life::kRing ? RingStride(buffer) + buffer.bytes.bound : buffer.bytes.bound;
}

int SegmentEnd(const Program& program, int i) {
  const int segment = program.instructions[i].segment;
  int end = i + 1;
  while (segment >= 0 && end < static_cast<int>(program.instructions.size()) &&
         program.instructions[end].segment == segment) {
    ++end;
  }
  return end;
}

std::vector<const Program*> StagePrograms::All() const {
  std::vector<const Program*> programs;
  for (const Program* program : {&train, &begin, &update, &validate, &train_save}) {
    if (!program->instructions.empty()) {
      programs.push_back(program);
    }
  }
  return programs;
}

}  // namespace tandem::schedules
