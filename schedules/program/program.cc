// SPDX-License-Identifier: Apache-2.0
#include "schedules/program/program.h"

namespace tandem::schedules {

int64_t RingStride(const Buffer& buffer) {
  return (buffer.bytes.bound + buffer.alignment - 1) / buffer.alignment * buffer.alignment;
}

int64_t ExtentOf(const Buffer& buffer) {
  return buffer.life == Life::kRing ? RingStride(buffer) + buffer.bytes.bound : buffer.bytes.bound;
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
