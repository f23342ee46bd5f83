// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/operand_table.h"

#include <gtest/gtest.h>

#include <random>

#include "schedules/program/signature.h"
#include "schedules/program/text.h"
#include "tests/oracle/random_job.h"

namespace tandem::oracle {
namespace {

using schedules::Opcode;
using schedules::OperandRow;
using schedules::Presence;

std::string ModesOf(const OperandRow& row) {
  std::string modes;
  for (int mode = 0; mode < 3; ++mode) {
    modes += schedules::Allows(row.modes, mode) ? std::string(1, "rwa"[mode]) : "";
  }
  return modes;
}

std::string PresenceOf(const OperandRow& row) {
  switch (row.presence) {
    case Presence::kOnce:
      return "once";
    case Presence::kSometimes:
      return "sometimes";
    case Presence::kOneOf:
      return "one of";
    case Presence::kEach:
      return "each";
  }
  return "";
}

TEST(OperandTableTest, TheSignaturesAreTheOraclesOwn) {
  for (int i = 0; i < schedules::kNumOpcodes; ++i) {
    const auto opcode = static_cast<Opcode>(i);
    SCOPED_TRACE(schedules::ToText(opcode));
    const std::vector<OperandRow>& rows = schedules::SignatureOf(opcode);
    const std::vector<TableRow>& table = TableOf(opcode);
    ASSERT_EQ(rows.size(), table.size());
    for (size_t r = 0; r < rows.size(); ++r) {
      SCOPED_TRACE(table[r].name);
      EXPECT_EQ(schedules::ToText(rows[r].role), table[r].name);
      EXPECT_EQ(ModesOf(rows[r]), table[r].modes);
      EXPECT_EQ(PresenceOf(rows[r]), table[r].presence);
      EXPECT_EQ(rows[r].former, table[r].former);
      EXPECT_EQ(*rows[r].when != '\0', table[r].presence == "sometimes");
    }
  }
}

TEST(OperandTableTest, BuffersOfOperandsAreOfTheirRoles) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    const Job job = seed % 2 == 0 ? RandomJob(random) : OverlapJob(random);
    for (const schedules::Program* program : job.stage.All()) {
      for (const schedules::Instruction& instruction : program->instructions) {
        for (size_t k = 0; k < instruction.operands.size(); ++k) {
          const TableRow* const row = RowOf(*program, instruction, k);
          ASSERT_TRUE(row != nullptr) << schedules::ToText(instruction, job.outline) << " operand " << k;
          // A state that a forward carries on has the kind and the modes of one that it adds to.
          const bool carried =
              row->name == "state" && instruction.operands[k].role == schedules::Role::kCarriedState;
          EXPECT_TRUE(carried || row->name == schedules::ToText(instruction.operands[k].role))
              << schedules::ToText(instruction, job.outline) << " operand " << k << ", seed " << seed;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::oracle
