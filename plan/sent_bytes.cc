// SPDX-License-Identifier: Apache-2.0
#include "plan/sent_bytes.h"

#include "plan/prediction.h"
#include "schedules/simulate/cost.h"

namespace tandem::plan {

std::map<std::string, double> SentBytes(const JobPlan& plan) {
  const schedules::Program& program = plan.stage.train;
  const schedules::Workload workload = WorkloadOf(plan);
  std::map<std::string, double> sent;
  for (const schedules::Instruction& instruction : program.instructions) {
    if (instruction.communicator < 0 || instruction.opcode == schedules::Opcode::kReceive) {
      continue;
    }
    const schedules::Work work = schedules::WorkOf(plan.outline, program, instruction, workload);
    if (const double bytes = schedules::CrossingBytes(work, instruction.opcode); bytes > 0) {
      sent[program.communicators[instruction.communicator].purpose] += bytes;
    }
  }
  return sent;
}

}  // namespace tandem::plan
