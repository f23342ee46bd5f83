// SPDX-License-Identifier: Apache-2.0
#include "trainer/shared_calls.h"

#include <cstdint>

#include "device/memory.h"
#include "trainer/binder.h"
#include "trainer/stage_memory.h"

namespace tandem::trainer {
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

}  // namespace tandem::trainer
