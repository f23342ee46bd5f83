// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "schedules/build/program_builder.h"
#include "schedules/check/check.h"
#include "schedules/program/text.h"

namespace tandem::schedules {

// Builds the programs of a stage. The test fails if the check refuses them.
inline StagePrograms ProvenStage(const Outline& outline, const BuildOptions& options,
                                 Schedule schedule = Schedule::kSequential) {
  StagePrograms stage = BuildStage(outline, options, schedule).value();
  EXPECT_EQ(IsDivided(outline) ? CheckAlone(outline, options, stage) : CheckStage(outline, options, stage),
            absl::OkStatus());
  return stage;
}

// The index of the first instruction with that opcode, target and microbatch. The test fails if there is
// none.
inline int Find(const Program& program, Opcode opcode, int target, int microbatch) {
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.opcode == opcode && instruction.target == target &&
        instruction.microbatch == microbatch) {
      return i;
    }
  }
  ADD_FAILURE() << program.name << " has no " << ToText(opcode) << " of " << target << " mb " << microbatch;
  return 0;
}

inline int Count(const Program& program, Opcode opcode) {
  return static_cast<int>(std::count_if(program.instructions.begin(), program.instructions.end(),
                                        [&](const Instruction& i) { return i.opcode == opcode; }));
}

}  // namespace tandem::schedules
