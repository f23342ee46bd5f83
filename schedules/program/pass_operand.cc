// SPDX-License-Identifier: Apache-2.0
#include "schedules/program/pass_operand.h"

#include "platform/check.h"

namespace tandem::schedules {

const Access& AccessOf(const Node& node, Opcode opcode) {
  switch (opcode) {
    case Opcode::kBackwardInput:
      return node.backward_input;
    case Opcode::kBackwardWeight:
      return node.backward_weight;
    default:
      TANDEM_CHECK(opcode == Opcode::kForward || opcode == Opcode::kRecompute,
                   "only passes of nodes have it");
      return node.forward;
  }
}

void ListOperands(const Node& node, Opcode opcode, const std::vector<bool>& recompute, bool trains,
                  std::vector<PassOperand>& operands) {
  const Access& access = AccessOf(node, opcode);
  const bool again = opcode == Opcode::kRecompute;
  const bool changes = trains && !again;
  operands.clear();
  operands.reserve(16);
  const auto values = [&](const std::vector<ValueId>& ids, Role role, Mode mode) {
    for (const ValueId id : ids) {
      operands.push_back({role, id, -1, mode});
    }
  };
  const auto parts = [&](const std::vector<UnitPart>& unit_parts, Role role, Mode mode) {
    for (const UnitPart& part : unit_parts) {
      operands.push_back({role, part.unit, part.part, mode});
    }
  };
  values(access.reads, Role::kValue, Mode::kReads);
  for (const ValueId id : access.writes) {
    if (!again || (id < static_cast<int>(recompute.size()) && recompute[id])) {
      operands.push_back({Role::kValue, id, -1, Mode::kWrites});
    }
  }
  values(access.gradient_reads, Role::kGradient, Mode::kReads);
  if (changes) {
    values(access.gradient_writes, Role::kGradient, Mode::kWrites);
  }
  parts(access.parameters, Role::kParameters, Mode::kReads);
  if (changes) {
    parts(access.parameter_gradients, Role::kParameterGradient, Mode::kWrites);
  }
  values(access.state_reads, Role::kState, Mode::kReads);
  if (changes) {
    values(access.state_adds, Role::kState, Mode::kAdds);
    values(access.state_carries, Role::kCarriedState, Mode::kAdds);
  }
  if (access.reads_inputs) {
    operands.push_back({Role::kInputs, -1, -1, Mode::kReads});
  }
  if (access.scratch.bound > 0) {
    operands.push_back({Role::kScratch, -1, -1, Mode::kWrites});
  }
}

const Operand* Find(const Program& program, const Instruction& instruction, const PassOperand& what) {
  for (const Operand& operand : instruction.operands) {
    const bool named = what.role == Role::kInputs || what.role == Role::kScratch ||
                       (program.buffers[operand.buffer].subject == what.id &&
                        (what.part < 0 || operand.part == what.part || operand.part < 0));
    if (operand.role == what.role && named && (operand.mode == Mode::kReads) == (what.mode == Mode::kReads)) {
      return &operand;
    }
  }
  return nullptr;
}

}  // namespace tandem::schedules
