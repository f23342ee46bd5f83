// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/program/opcode.h"
#include "schedules/program/outline.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// The access of a node's pass. For a Recompute it is that of the forward; ListOperands leaves out what was
// kept.
const Access& AccessOf(const Node& node, Opcode opcode);

// An operand of a node's pass, independent of the buffer that holds it.
struct PassOperand {
  Role role = Role::kValue;  // a role that passes of nodes have
  int id = -1;               // of a value, unit or state
  int part = -1;             // of a unit
  // Always kWrites for gradients, even if a pass adds to them; always kAdds for carried states, even for the
  // first microbatch, which overwrites.
  Mode mode = Mode::kReads;
  bool operator==(const PassOperand&) const = default;
};

// Writes the operands of a pass to `operands`, in the order of the lists of Access. `recompute` is by value,
// as in BuildOptions. `trains` is false in `validate`.
void ListOperands(const Node& node, Opcode opcode, const std::vector<bool>& recompute, bool trains,
                  std::vector<PassOperand>& operands);

// Finds the operand of the instruction, a pass of a node, that corresponds to `what`: the same role, subject
// and part, and it reads if `what` reads. Null if there is none. Requires a program that is formed.
const Operand* Find(const Program& program, const Instruction& instruction, const PassOperand& what);

}  // namespace tandem::schedules
