// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>

#include <exception>
#include <string>

#include "plan/job_plan.h"
#include "platform/log.h"
#include "schedules/program/text.h"
#include "worker/instruction_names.h"

namespace tandem::worker {

InstructionNames NameProgram(const v1::JobSpec& resolved) {
  InstructionNames names;
  try {
    const plan::JobPlan plan = plan::MakeJobPlan(resolved);
    for (const schedules::Program* program : plan.stage.All()) {
      for (const schedules::Instruction& instruction : program->instructions) {
        const schedules::Instruction kind{.opcode = instruction.opcode, .target = instruction.target};
        names.Add(schedules::ToText(kind, plan.outline), std::string(schedules::ToText(instruction.opcode)),
                  instruction.microbatch);
      }
    }
  } catch (const std::exception& e) {
    platform::Log(platform::LogLevel::kWarning, "the program of a job cannot be named",
                  {{"error", e.what()}});
    names = InstructionNames();
  }
  // The programs were a kilobyte an instruction in small pieces, which the C library keeps otherwise.
  malloc_trim(0);
  return names;
}

}  // namespace tandem::worker
