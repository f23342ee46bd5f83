// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/program/opcode.h"
#include "schedules/program/outline.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// What a node's pass accesses. For a Recompute: the access of the forward; ListOperands leaves out what was
// kept.
const Access& AccessOf(const Node& node, Opcode opcode);

// An operand of a node's pass, whatever buffer holds it.
struct PassOperand {
  Role role = Role::kValue;  // one of those of passes of nodes
  int id = -1;               // of the value, unit or state
  int part = -1;             // of the unit
  // Always kWrites for gradients, even if a pass adds to them; always kAdds for carried states, even for the
  // first microbatch, which overwrites.
  Mode mode = Mode::kReads;
  bool operator==(const PassOperand&) const = default;
};

// The operands of a pass in their order, which is that of the lists of Access, written into `operands`.
// recompute: by value, as in BuildOptions. trains: false in `validate`.
void ListOperands(const Node& node, Opcode opcode, const std::vector<bool>& recompute, bool trains,
                  std::vector<PassOperand>& operands);

// The operand of the instruction, a pass of a node, that is `what`; null: the instruction lacks it. It has
// the same role, subject and part, and reads where `what` reads. Of a program that is formed.
const Operand* Find(const Program& program, const Instruction& instruction, const PassOperand& what);

}  // namespace tandem::schedules
