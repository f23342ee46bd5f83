// SPDX-License-Identifier: Apache-2.0
#include "schedules/check/node_pass.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "schedules/program/pass_operand.h"

namespace tandem::schedules {
namespace {

// All operands of one pass, or of a half.
std::vector<PassOperand> OperandsOf(const Node& node, Opcode opcode) {
  std::vector<PassOperand> operands;
  ListOperands(node, opcode, {}, /*trains=*/true, operands);
  std::erase_if(operands, [](const PassOperand& o) { return o.role == Role::kScratch; });
  return operands;
}

// What a pass makes depends on it.
bool IsRead(const PassOperand& operand) {
  return operand.mode == Mode::kReads || operand.role == Role::kCarriedState;
}

}  // namespace

void RunPass(Symbols& symbols, const Node& node, NodeId number, Opcode pass, int microbatch,
             PassMemory& memory) {
  const Opcode opcode = pass == Opcode::kRecompute ? Opcode::kForward : pass;
  const std::vector<PassOperand> operands = OperandsOf(node, opcode);
  std::vector<Symbol> reads;
  reads.reserve(operands.size());
  for (const PassOperand& operand : operands) {
    if (IsRead(operand)) {
      reads.push_back(memory.Read(operand));
    }
  }
  const bool reads_inputs = AccessOf(node, opcode).reads_inputs;
  const Symbol call = symbols.Of(SymbolOp::kCall, number, static_cast<int>(opcode),
                                 reads_inputs ? microbatch : -1, absl::MakeConstSpan(reads));
  int place = 0;
  for (const PassOperand& operand : operands) {
    if (operand.mode != Mode::kReads) {
      memory.Write(operand, symbols.Of(SymbolOp::kOutput, place++, 0, 0, {call}));
    }
  }
}

std::string ArgumentName(const Outline& outline, NodeId node, Opcode opcode, int argument) {
  for (const PassOperand& operand : OperandsOf(outline.nodes[node], opcode)) {
    if (!IsRead(operand) || argument-- > 0) {
      continue;
    }
    switch (operand.role) {
      case Role::kGradient:
        return absl::StrCat("the gradient of ", outline.values[operand.id].name);
      case Role::kParameters:
        return absl::StrCat("the parameters of ", outline.units[operand.id].name);
      case Role::kState:
      case Role::kCarriedState:
        return outline.states[operand.id].name;
      case Role::kInputs:
        return "the inputs";
      default:
        return outline.values[operand.id].name;
    }
  }
  return "?";
}

}  // namespace tandem::schedules
