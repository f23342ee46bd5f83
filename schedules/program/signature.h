// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "schedules/program/opcode.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// How often an instruction has an operand that matches a row.
enum class Presence : uint8_t {
  kOnce,
  kSometimes,  // OperandRow::when says in which instructions
  kOneOf,      // an instruction has one of the rows with this presence
  kEach,       // one for each thing in this role that the instruction accesses; possibly none
};

// One row of a signature.
struct OperandRow {
  Role role = Role::kValue;
  uint32_t modes = 0;  // allowed modes, one bit for each
  Presence presence = Presence::kOnce;
  bool former = false;  // for a ring: the former run's element
  const char* when = "";
};

inline bool Allows(uint64_t bits, int value) { return (bits >> value & 1) != 0; }

// The operands of an opcode's instructions, in order. This one table is used by the passes that emit
// instructions, the check, the trainer and the cost model, and docs/opcodes.md is generated from it. The
// declaration of a node says which values, parameters and states its passes have (pass_operand.h).
const std::vector<OperandRow>& SignatureOf(Opcode opcode);

// "the norm terms"
const char* ToText(Role role);

// An operand, identified by its role.
struct NamedOperand {
  Role role;
  BufferId buffer = -1;  // -1: there is none
  int part = -1;
};

// Orders the operands of an instruction as its signature does. Not for passes of nodes. Operands with the
// same role keep their order in `named`. An operand that may write or add writes if `first`, and adds
// otherwise. TANDEM_CHECKs that the signature allows the operands.
std::vector<Operand> MakeOperands(Opcode opcode, const std::vector<NamedOperand>& named, bool first = true);

// The first operand with that role; null if there is none.
const Operand* Find(const Instruction& instruction, Role role);

}  // namespace tandem::schedules
