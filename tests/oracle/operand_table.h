// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "schedules/program/program.h"

namespace tandem::oracle {

// The operands of each opcode, by the kinds of their buffers. This table is written independently of
// schedules/program/signature.h, whose roles the oracle does not read; operand_table_test.cc compares the
// two.
struct TableRow {
  std::string name;      // "staging"
  std::string modes;     // allowed modes, of r (reads), w (writes), a (adds)
  std::string presence;  // "once", "sometimes", "one of", "each"
  std::vector<schedules::BufferKind> kinds;
  bool former = false;
};

const std::vector<TableRow>& TableOf(schedules::Opcode opcode);

// The row of an operand, by its buffer's kind and its mode; null if none fits. Counters and states look
// alike: the first half of them are counters.
const TableRow* RowOf(const schedules::Program& program, const schedules::Instruction& instruction,
                      size_t operand);

// The operands that belong to the row of that name.
std::vector<schedules::Operand> Named(const schedules::Program& program,
                                      const schedules::Instruction& instruction, const std::string& name);

}  // namespace tandem::oracle
