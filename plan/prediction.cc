#include "plan/prediction.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

}  // namespace

schedules::Workload WorkloadOf(const JobPlan& plan) {
  return {.compute = ComputeName(plan), .ranks = plan.group_ranks};
}

int64_t ComputeNanoseconds(const JobPlan& plan, const Prediction& prediction) {
  return prediction.busy_ns.at(schedules::ComputeStream(plan.stage.train));
}

int64_t SlowedNanoseconds(const JobPlan& plan, const Prediction& prediction) {
  const int64_t slowed = ComputeNanoseconds(plan, prediction) -
                         prediction.simulation.undisturbed_ns.at(schedules::ComputeStream(plan.stage.train));
  // Each instruction's times are rounded to nanoseconds.
  return slowed > static_cast<int64_t>(prediction.simulation.timeline.instructions.size()) ? slowed : 0;
}

absl::StatusOr<Prediction> Predict(const JobPlan& plan, const schedules::DeviceProfile& profile) {
  const schedules::Workload workload = WorkloadOf(plan);
  const auto rate = profile.compute.find(workload.compute);
  if (rate == profile.compute.end()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "precision.compute: the device profile ", profile.name, " has no rate for ", workload.compute,
        "; it has ", absl::StrJoin(profile.compute, ", ", [](std::string* out, const auto& entry) {
          *out += entry.first;
        })));
  }
  const schedules::Program& program = plan.stage.train;
  Prediction result;
  result.simulation = schedules::Simulate(plan.outline, program, workload, profile);
  const schedules::Timeline& timeline = result.simulation.timeline;
  result.step_ns = schedules::StepNanoseconds(program, timeline);
  if (result.step_ns == 0 || result.step_ns >= schedules::kLongestNanoseconds) {
    return absl::FailedPreconditionError(absl::StrCat(
        "by the device profile ", profile.name, " a step takes ",
        result.step_ns == 0 ? "less than a nanosecond" : "more than 70 years",
        "; rates are FLOPs and bytes a second (", workload.compute, ": ", rate->second.flops_per_second,
        ", memory: ", profile.memory_bytes_per_second, ", link: ", profile.link.bytes_per_second,
        "), times are seconds (overhead_seconds: ", profile.overhead_seconds, ")"));
  }
  const double seconds = static_cast<double>(result.step_ns) * 1e-9;
  const double tokens = static_cast<double>(TokensPerStep(plan));
  result.tokens_per_second = tokens / seconds;
  if (rate->second.peak_flops_per_second > 0) {
    result.model_flops_utilization = model::FlopsPerToken(plan.model, plan.batch.sequence_length) *
                                     result.tokens_per_second / plan.train.ranks /
                                     rate->second.peak_flops_per_second;
  }
  result.busy_ns = schedules::BusyNanoseconds(program, timeline);
  result.exposed_ns = schedules::ExposedCommunication(program, timeline);
  result.exposed_by = schedules::StallsByOpcode(program, timeline);
  result.critical_path = schedules::CriticalPath(program, timeline);
  result.memory = PlanMemory(plan);
  result.memory_curve = schedules::MemoryOverTime(program, timeline);
  result.memory_waits = MemoryWaitsOf(plan, profile, result.step_ns);
  result.outside_bytes = OutsideBytes(plan, profile);
  return result;
}

}  // namespace tandem::plan
