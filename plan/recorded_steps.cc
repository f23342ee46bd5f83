#include "plan/recorded_steps.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/prediction.h"
#include "schedules/simulate/measurement.h"
#include "schedules/simulate/memory_curve.h"
#include "schedules/simulate/timeline.h"
#include "schedules/simulate/trace.h"

namespace tandem::plan {

schedules::Timeline ToTimeline(const v1::StepTimeline& step) {
  schedules::Timeline timeline{
      .program = step.program(), .rank = step.rank(), .step = step.step(), .serialized = step.serialized()};
  timeline.instructions.resize(static_cast<size_t>(step.start_ns_size()));
  for (int i = 0; i < step.start_ns_size(); ++i) {
    timeline.instructions[static_cast<size_t>(i)] = {
        .start_ns = step.start_ns(i), .end_ns = step.end_ns(i), .cpu_ns = step.cpu_ns(i)};
  }
  return timeline;
}

absl::Status CheckRecorded(const JobPlan& plan, absl::Span<const v1::StepTimeline> steps) {
  const auto size = static_cast<int>(plan.stage.train.instructions.size());
  for (const v1::StepTimeline& step : steps) {
    if (step.program() != plan.stage.train.name || step.start_ns_size() != size ||
        step.end_ns_size() != size || step.cpu_ns_size() != size) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", step.rank(), " recorded a program \"", step.program(), "\" of ",
                       step.start_ns_size(), " instructions, this build plans \"", plan.stage.train.name,
                       "\" of ", size, " for the job; use the build that the job runs with"));
    }
  }
  return absl::OkStatus();
}

std::string RecordedTrace(const JobPlan& plan, absl::Span<const v1::StepTimeline> steps) {
  int64_t first = 0;
  for (const v1::StepTimeline& step : steps) {
    first = first == 0 ? step.start_unix_ns() : std::min(first, step.start_unix_ns());
  }
  std::vector<schedules::Timeline> timelines;
  std::vector<schedules::MemoryCurve> memory;
  for (const v1::StepTimeline& step : steps) {
    timelines.push_back(ToTimeline(step));
    memory.push_back(schedules::MemoryOverTime(plan.stage.train, timelines.back()));
  }
  std::vector<schedules::TraceRun> runs;
  for (size_t i = 0; i < timelines.size(); ++i) {
    runs.push_back({.program = &plan.stage.train,
                    .timeline = &timelines[i],
                    .offset_ns = steps[i].start_unix_ns() - first,
                    .memory = &memory[i]});
  }
  return schedules::TraceToJson(plan.outline, runs);
}

schedules::DeviceProfile RecordedProfile(const JobPlan& plan, absl::Span<const v1::StepTimeline> steps,
                                         schedules::DeviceProfile base, int ranks_per_machine) {
  std::vector<schedules::Timeline> serialized;
  std::vector<schedules::Timeline> overlapped;
  int processors = 0;
  for (const v1::StepTimeline& step : steps) {
    (step.serialized() ? serialized : overlapped).push_back(ToTimeline(step));
    processors = std::max(processors, step.processors());
  }
  base.measured = schedules::MeasureTimes(plan.outline, plan.stage.train, WorkloadOf(plan),
                                          serialized.empty() ? overlapped : serialized);
  const schedules::Gaps gaps = schedules::MeasureGaps(plan.stage.train, overlapped);
  base.gap_seconds = gaps.gap_seconds;
  base.wake_seconds = gaps.wake_seconds;
  base.skew_seconds = schedules::MeasureSkew(plan.stage.train, overlapped);
  base.describe = absl::StrCat("measured from ", steps.size(), " recorded steps of job ", plan.train.name,
                               "; rates: ", base.describe);
  base.name += "-measured";
  if (base.cores > 0 && processors > 0) {
    base.cores = static_cast<double>(processors) / std::max(1, ranks_per_machine);
  }
  return base;
}

}  // namespace tandem::plan
