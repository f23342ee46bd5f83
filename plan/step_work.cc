// SPDX-License-Identifier: Apache-2.0
#include "plan/step_work.h"

#include "plan/prediction.h"
#include "schedules/simulate/cost.h"
#include "schedules/simulate/device_profile.h"

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

double SecondsAtPeak(const JobPlan& plan, double peak) {
  return model::FlopsPerToken(plan.model, plan.batch.sequence_length) *
         static_cast<double>(TokensPerStep(plan)) / plan.topology.world / peak;
}

double SecondsAtPeakOf(const JobPlan& plan, absl::string_view device) {
  const double peak = schedules::PeakFlops(device, ComputeName(plan));
  return peak > 0 ? SecondsAtPeak(plan, peak) : 0;
}

}  // namespace tandem::plan
