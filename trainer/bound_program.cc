// SPDX-License-Identifier: Apache-2.0
#include "trainer/bound_program.h"

namespace tandem::trainer {

using schedules::Instruction;
using schedules::Program;
using schedules::Wait;

BoundProgram::BoundProgram(const Program& program,
                           const std::function<std::shared_ptr<const Call>(const Instruction&, int)>& bind)
    : program_(program), instructions_(program.instructions.size()) {
  for (size_t i = 0; i < instructions_.size(); ++i) {
    BoundInstruction& bound = instructions_[i];
    bound.instruction = &program.instructions[i];
    bound.index = static_cast<int>(i);
    for (const int parity : {0, 1}) {
      bound.calls[parity] = bind(program.instructions[i], parity);
    }
  }
  MakeSegments();
}

// A segment is issued at the place of its first instruction. That is earlier than the program says for the
// others, and right: they wait for nothing but that their stream gets there.
void BoundProgram::MakeSegments() {
  std::vector<bool> awaited(instructions_.size());
  for (const BoundInstruction& bound : instructions_) {
    for (const Wait& wait : bound.instruction->waits) {
      awaited[wait.instruction] = true;
    }
  }
  std::vector<int> segment_of(instructions_.size());
  std::vector<int> open(program_.streams.size(), -1);  // by stream
  for (const BoundInstruction& bound : instructions_) {
    const Instruction& instruction = *bound.instruction;
    const bool holds_issue = instruction.opcode == schedules::Opcode::kHostWait;
    if (holds_issue) {
      open.assign(open.size(), -1);  // what the program issues behind it comes behind it
    }
    int segment = open[instruction.stream];
    if (segment < 0 || !instruction.waits.empty() ||
        segments_[segment].instructions.back()->instruction->segment != instruction.segment) {
      segment = static_cast<int>(segments_.size());
      segments_.push_back(
          {.stream = instruction.stream, .replayed = instruction.segment >= 0, .holds_issue = holds_issue});
      for (const Wait& wait : instruction.waits) {
        segments_.back().waits.push_back(segment_of[wait.instruction]);
      }
    }
    segment_of[bound.index] = segment;
    segments_[segment].instructions.push_back(&bound);
    segments_[segment].awaited = awaited[bound.index];
    open[instruction.stream] = awaited[bound.index] || holds_issue ? -1 : segment;
  }
}

}  // namespace tandem::trainer
