// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "schedules/program/opcode.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// How often an instruction has an operand of a row.
enum class Presence : uint8_t {
  kOnce,
  kSometimes,  // not in every instruction; OperandRow::when says in which
  kOneOf,      // exactly one of the rows with this presence
  kEach,       // as many as the target has, or none
};

// One row of a signature.
struct OperandRow {
  Role role = Role::kValue;
  uint32_t modes = 0;  // a bit for each allowed mode
  Presence presence = Presence::kOnce;
  bool former = false;  // the former run's element of a ring
  const char* when = "";
};

inline bool Allows(uint64_t bits, int value) { return (bits >> value & 1) != 0; }

// The operands of an instruction, in their order: the one table that passes emit by, and that the check, the
// trainer and the cost model read. docs/opcodes.md is written from it. Which values, parameters and states a
// pass of a node has, its declaration says (pass_operand.h).
const std::vector<OperandRow>& SignatureOf(Opcode opcode);

// "the norm terms"
const char* ToText(Role role);

// An operand that a pass of the compiler names by its role.
struct NamedOperand {
  Role role;
  BufferId buffer = -1;  // -1: there is none
  int part = -1;
};

// The operands of an instruction that is no node's, in the order of its signature, whatever the order of
// `named` (of several with one role: that order). first: of a row that writes or adds, whether it writes.
// TANDEM_CHECK that the signature allows them.
std::vector<Operand> MakeOperands(Opcode opcode, const std::vector<NamedOperand>& named, bool first = true);

// The operand with that role; null: none. Of several, the first.
const Operand* Find(const Instruction& instruction, Role role);

}  // namespace tandem::schedules
