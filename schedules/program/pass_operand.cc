// SPDX-License-Identifier: Apache-2.0
#include "schedules/program/pass_operand.h"

#include "platform/check.h"

namespace tandem::schedules {

const Access& AccessOf(const Node& node, Opcode opcode) {
  switch (opcode) {
    case Opcode::kBackward:
      return node.backward;
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
  using What = PassOperand::What;
  const Access& access = AccessOf(node, opcode);
  const bool again = opcode == Opcode::kRecompute;
  const bool changes = trains && !again;
  operands.clear();
  operands.reserve(16);
  const auto values = [&](const std::vector<ValueId>& ids, What what, Mode mode) {
    for (const ValueId id : ids) {
      operands.push_back({what, id, -1, mode});
    }
  };
  const auto parts = [&](const std::vector<UnitPart>& unit_parts, What what, Mode mode) {
    for (const UnitPart& part : unit_parts) {
      operands.push_back({what, part.unit, part.part, mode});
    }
  };
  values(access.reads, What::kValue, Mode::kReads);
  for (const ValueId id : access.writes) {
    if (!again || (id < static_cast<int>(recompute.size()) && recompute[id])) {
      operands.push_back({What::kValue, id, -1, Mode::kWrites});
    }
  }
  values(access.gradient_reads, What::kGradient, Mode::kReads);
  if (changes) {
    values(access.gradient_writes, What::kGradient, Mode::kWrites);
  }
  parts(access.parameters, What::kParameters, Mode::kReads);
  if (changes) {
    parts(access.parameter_gradients, What::kParameterGradient, Mode::kWrites);
  }
  values(access.state_reads, What::kState, Mode::kReads);
  if (changes) {
    values(access.state_adds, What::kState, Mode::kAdds);
    values(access.state_carries, What::kCarriedState, Mode::kAdds);
  }
  if (access.reads_inputs) {
    operands.push_back({What::kInputs, -1, -1, Mode::kReads});
  }
  if (access.scratch.bound > 0) {
    operands.push_back({What::kScratch, -1, -1, Mode::kWrites});
  }
}

}  // namespace tandem::schedules
