// SPDX-License-Identifier: Apache-2.0
#include "trainer/bound_program.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "device/memory.h"
#include "trainer/binder.h"
#include "trainer/stage_memory.h"

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

namespace {

using schedules::Opcode;

// Whether the binder looks at nothing of such an instruction but its target and its operands, and there is
// one for each microbatch.
bool IsRepeated(Opcode opcode) {
  switch (opcode) {
    case Opcode::kForward:
    case Opcode::kRecompute:
    case Opcode::kBackwardInput:
    case Opcode::kBackwardWeight:
    case Opcode::kSend:
    case Opcode::kReceive:
    case Opcode::kUnshard:
    case Opcode::kUnshardOuter:
    case Opcode::kReduceGradients:
    case Opcode::kRound:
    case Opcode::kReduceOuter:
    case Opcode::kAccumulate:
    case Opcode::kZero:
      return true;
    default:
      return false;
  }
}

void Append(std::string& key, int64_t number) {
  key.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

}  // namespace

std::shared_ptr<const Call> SharedCalls::Get(const schedules::Program& program,
                                             const schedules::Instruction& instruction, int parity,
                                             comm::Communicator* communicator) {
  const std::string key = KeyOf(program, instruction, parity, communicator);
  if (const auto found = calls_.find(key); found != calls_.end()) {
    return found->second;
  }
  auto call = std::make_shared<const Call>(binder_.Bind(program, instruction, parity, communicator));
  ++num_calls_;
  if (!key.empty()) {
    calls_.emplace(key, call);
  }
  return call;
}

std::string SharedCalls::KeyOf(const schedules::Program& program, const schedules::Instruction& instruction,
                               int parity, const comm::Communicator* communicator) const {
  std::string key;
  if (!IsRepeated(instruction.opcode)) {
    return key;
  }
  Append(key, static_cast<int64_t>(instruction.opcode));
  Append(key, instruction.target);
  Append(key, reinterpret_cast<intptr_t>(communicator));
  for (const schedules::Operand& operand : instruction.operands) {
    const schedules::Buffer& buffer = program.buffers[operand.buffer];
    const device::Memory memory = memory_.At(program, operand, parity);
    Append(key, reinterpret_cast<intptr_t>(memory.begin));
    Append(key, memory.bytes);
    Append(key, static_cast<int64_t>(operand.mode));
    Append(key, operand.part);
    Append(key, static_cast<int64_t>(buffer.kind));
    Append(key, buffer.subject);
  }
  return key + program.streams[instruction.stream].name;
}

namespace {

std::vector<int> PlacesAmong(const std::vector<schedules::CommunicatorUse>& all,
                             const std::vector<schedules::CommunicatorUse>& of_program) {
  std::vector<int> places;
  for (const schedules::CommunicatorUse& use : of_program) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const schedules::CommunicatorUse& other) {
      return other.group == use.group && other.purpose == use.purpose;
    });
    if (found == all.end()) {
      throw std::logic_error(absl::StrCat("no communicator for ", use.group, " ", use.purpose));
    }
    places.push_back(static_cast<int>(found - all.begin()));
  }
  return places;
}

}  // namespace

PlacedProgram::PlacedProgram(const schedules::Program& program, const comm::Communicators& communicators,
                             const std::vector<schedules::CommunicatorUse>& uses, SharedCalls& calls,
                             int first)
    : uses_of(PlacesAmong(uses, program.communicators)),
      program(program,
              [&](const schedules::Instruction& in, int parity) {
                return calls.Get(program, in, parity,
                                 in.communicator < 0 ? nullptr : &communicators[uses_of[in.communicator]]);
              }),
      first(first) {}

}  // namespace tandem::trainer
