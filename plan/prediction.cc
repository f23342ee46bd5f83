#include "plan/prediction.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "schedules_v1/timeline.h"

namespace tandem::plan {

schedules_v1::Workload WorkloadOf(const JobPlan& plan) {
  return {.compute = ComputeName(plan.compute),
          .element_bytes = model::ElementBytes(plan.compute),
          .ranks = plan.train.ranks};
}

int64_t SlowedNanoseconds(const Prediction& prediction) {
  const int compute = static_cast<int>(schedules_v1::StreamKind::kCompute);
  const int64_t slowed = prediction.busy_ns[compute] - prediction.simulation.alone_ns[compute];
  // Each instruction's times are rounded to nanoseconds.
  return slowed > static_cast<int64_t>(prediction.simulation.timeline.instructions.size()) ? slowed : 0;
}

absl::StatusOr<Prediction> Predict(const JobPlan& plan, const schedules_v1::DeviceProfile& profile) {
  const schedules_v1::Workload workload = WorkloadOf(plan);
  const auto rate = profile.compute.find(workload.compute);
  if (rate == profile.compute.end()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "precision.compute: the device profile ", profile.name, " has no rate for ", workload.compute,
        "; it has ", absl::StrJoin(profile.compute, ", ", [](std::string* out, const auto& entry) {
          *out += entry.first;
        })));
  }
  Prediction result;
  result.simulation = schedules_v1::Simulate(plan.outline_v1, plan.train_program, workload, profile);
  const schedules_v1::Timeline& timeline = result.simulation.timeline;
  result.step_ns = schedules_v1::StepNanoseconds(timeline);
  if (result.step_ns == 0 || result.step_ns >= schedules_v1::kLongestNanoseconds) {
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
  result.busy_ns = schedules_v1::BusyNanoseconds(plan.train_program, timeline);
  result.exposed_ns = schedules_v1::ExposedCommunication(plan.train_program, timeline);
  result.exposed_by = schedules_v1::StallsByOpcode(plan.train_program, timeline);
  result.critical_path = schedules_v1::CriticalPath(plan.train_program, timeline);
  result.memory = PlanMemory(plan);
  return result;
}

}  // namespace tandem::plan
