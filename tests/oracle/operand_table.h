// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "schedules/program/program.h"

namespace tandem::oracle {

// What an opcode's operands are, by the kinds of their buffers: written apart from
// schedules/program/signature.h, whose roles the oracle does not read. operand_table_test.cc compares the
// two.
struct TableRow {
  std::string name;      // "staging"
  std::string modes;     // of r (reads), w (writes), a (adds): those that are allowed
  std::string presence;  // "once", "sometimes", "one of", "each"
  std::vector<schedules::BufferKind> kinds;
  bool former = false;
};

const std::vector<TableRow>& TableOf(schedules::Opcode opcode);

// The row of an operand, by its buffer's kind and its mode; null: no row fits. Of counters and states, which
// are alike, the first half are counters.
const TableRow* RowOf(const schedules::Program& program, const schedules::Instruction& instruction,
                      size_t operand);

// The operands of the row of that name.
std::vector<schedules::Operand> Named(const schedules::Program& program,
                                      const schedules::Instruction& instruction, const std::string& name);

}  // namespace tandem::oracle
