// SPDX-License-Identifier: Apache-2.0
#include "plan/prediction.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "model/parameter_and_flop_counts.h"
#include "platform/status_macros.h"
#include "schedules/simulate/cost.h"
#include "schedules/simulate/device_profile.h"
#include "schedules/simulate/timeline.h"

namespace tandem::plan {
namespace {

// The same program without what only keeps it within its memory.
schedules::Program WithoutMemoryWaits(schedules::Program program) {
  for (schedules::Instruction& instruction : program.instructions) {
    std::erase_if(instruction.waits, [](const schedules::Wait& wait) { return wait.frees > 0; });
  }
  return program;
}

MemoryWaits MemoryWaitsOf(const JobPlan& plan, const schedules::DeviceProfile& profile, int64_t step_ns) {
  MemoryWaits result;
  for (const schedules::Instruction& instruction : plan.stage.train.instructions) {
    for (const schedules::Wait& wait : instruction.waits) {
      result.count += wait.frees > 0;
      result.freed_bytes += wait.frees;
    }
  }
  if (result.count > 0) {
    const schedules::Program without = WithoutMemoryWaits(plan.stage.train);
    const schedules::Simulation simulation =
        schedules::Simulate(plan.outline, without, WorkloadOf(plan), profile);
    result.cost_ns = std::max<int64_t>(0, step_ns - schedules::StepNanoseconds(without, simulation.timeline));
  }
  return result;
}

// Between two of the ranks; 1 where there is one.
int LeastDistance(parallel::RankList ranks) {
  std::sort(ranks.begin(), ranks.end());
  int least = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  for (size_t i = 2; i < ranks.size(); ++i) {
    least = std::min(least, ranks[i] - ranks[i - 1]);
  }
  return least;
}

// Checks that the profile has a rate for every type that a unit computes in.
absl::Status CheckRates(const JobPlan& plan, const schedules::DeviceProfile& profile) {
  const auto check = [&](absl::string_view field, model::ComputeType type) -> absl::Status {
    const char* const name = model::ToText(type);
    if (profile.compute.contains(name)) {
      return absl::OkStatus();
    }
    std::vector<std::string> known;
    for (const auto& [type, rate] : profile.compute) {
      if (type.find(' ') == std::string::npos) {  // not of certain products alone
        known.push_back(type);
      }
    }
    return absl::FailedPreconditionError(
        absl::StrCat(field, ": the device profile ", profile.name, " has no rate for ", name, "; it has ",
                     absl::StrJoin(known, ", "), "; add compute.", name,
                     ".flops_per_second to the profile, or plan with another profile or type"));
  };
  absl::Status status = check("precision.compute", plan.precision.common.compute);
  for (const auto& [unit, types] : plan.precision.units) {
    status.Update(check(absl::StrCat("precision.", unit, ".compute"), types.compute));
  }
  return status;
}

}  // namespace

schedules::Workload WorkloadOf(const JobPlan& plan) {
  schedules::Workload workload{.strategy = plan.options.strategy,
                               .expert_strategy = plan.options.expert_strategy};
  for (const parallel::Group& group : plan.groups) {
    const auto [shape, first] =
        workload.groups.emplace(group.name, schedules::GroupShape{static_cast<int>(group.ranks.size())});
    if (first) {  // the others of that name lie alike
      shape->second.stride = LeastDistance(group.ranks);
    }
  }
  return workload;
}

int64_t ComputeNanoseconds(const JobPlan& plan, const Prediction& prediction) {
  return schedules::ComputingTime(plan.stage.train, prediction.simulation.timeline);
}

int64_t SlowedNanoseconds(const JobPlan& plan, const Prediction& prediction) {
  const schedules::StreamId compute = schedules::ComputeStream(plan.stage.train);
  const int64_t slowed = prediction.busy_ns.at(compute) - prediction.simulation.undisturbed_ns.at(compute);
  // Each instruction's times are rounded to nanoseconds.
  return slowed > static_cast<int64_t>(prediction.simulation.timeline.instructions.size()) ? slowed : 0;
}

absl::StatusOr<Prediction> Predict(const JobPlan& plan, const schedules::DeviceProfile& profile) {
  TANDEM_RETURN_IF_ERROR(CheckRates(plan, profile));
  const schedules::Workload workload = WorkloadOf(plan);
  const schedules::ComputeRate& rate = profile.compute.at(ComputeName(plan));
  const schedules::Program& program = plan.stage.train;
  Prediction result;
  result.simulation = schedules::Simulate(plan.outline, program, workload, profile);
  const schedules::Timeline& timeline = result.simulation.timeline;
  result.step_ns = schedules::StepNanoseconds(program, timeline);
  if (result.step_ns == 0 || result.step_ns >= schedules::kLongestNanoseconds) {
    return absl::FailedPreconditionError(
        absl::StrCat("by the device profile ", profile.name, " a step takes ",
                     result.step_ns == 0 ? "less than a nanosecond" : "more than 70 years",
                     "; rates are FLOPs and bytes a second (", ComputeName(plan), ": ", rate.flops_per_second,
                     ", memory: ", profile.memory_bytes_per_second, ", link: ", profile.link.bytes_per_second,
                     "), times are seconds (overhead_seconds: ", profile.overhead_seconds, ")"));
  }
  if (const schedules::Program& saves = plan.stage.train_save; !saves.instructions.empty()) {
    const schedules::Simulation simulation = schedules::Simulate(plan.outline, saves, workload, profile);
    result.saving_step_ns = schedules::StepNanoseconds(saves, simulation.timeline);
  }
  const double seconds = static_cast<double>(result.step_ns) * 1e-9;
  const double tokens = static_cast<double>(TokensPerStep(plan));
  result.tokens_per_second = tokens / seconds;
  if (rate.peak_flops_per_second > 0) {
    result.model_flops_utilization = SecondsAtPeak(plan, rate.peak_flops_per_second) / seconds;
  }
  result.busy_ns = schedules::BusyNanoseconds(program, timeline);
  result.exposed_ns = schedules::ExposedCommunication(program, timeline);
  result.exposed_by_stream = schedules::ExposedByStream(program, timeline);
  result.stalls = schedules::StallsByCause(program, timeline);
  result.critical_path = schedules::CriticalPath(program, timeline);
  result.memory = PlanMemory(plan);
  result.memory_curve = schedules::MemoryOverTime(program, timeline);
  result.memory_waits = MemoryWaitsOf(plan, profile, result.step_ns);
  result.host_waits = schedules::HostWaitsOf(program, timeline);
  result.outside_bytes = OutsideBytes(plan, profile);
  return result;
}

double SecondsAtPeak(const JobPlan& plan, double peak) {
  return model::FlopsPerToken(plan.model, plan.batch.sequence_length) *
         static_cast<double>(TokensPerStep(plan)) / plan.topology.world / peak;
}

double SecondsAtPeakOf(const JobPlan& plan, absl::string_view device) {
  const double peak = schedules::PeakFlops(device, ComputeName(plan));
  return peak > 0 ? SecondsAtPeak(plan, peak) : 0;
}

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
