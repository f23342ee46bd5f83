// SPDX-License-Identifier: Apache-2.0
#include "worker/program_names.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "plan/job_plan.h"
#include "platform/log.h"
#include "schedules/program/text.h"

namespace tandem::worker {

std::vector<InstructionName> NameProgram(const v1::JobSpec& resolved) {
  std::vector<InstructionName> names;
  try {
    const plan::JobPlan plan = plan::MakeJobPlan(resolved);
    for (const schedules::Program* program : plan.stage.All()) {
      for (const schedules::Instruction& instruction : program->instructions) {
        InstructionName& name = names.emplace_back();
        name.text = schedules::ToText(instruction, plan.outline);
        name.phrase = instruction.microbatch < 0 ? name.text
                                                 : absl::StrCat(schedules::ToText(instruction.opcode),
                                                                " of microbatch ", instruction.microbatch);
      }
    }
  } catch (const std::exception& e) {
    platform::Log(platform::LogLevel::kWarning, "the program of a job cannot be named",
                  {{"error", e.what()}});
    names.clear();
  }
  return names;
}

}  // namespace tandem::worker
