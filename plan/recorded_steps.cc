#include "plan/recorded_steps.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/memory.h"
#include "plan/prediction.h"
#include "schedules_v1/measurement.h"
#include "schedules_v1/timeline.h"
#include "schedules_v1/trace.h"

namespace tandem::plan {

schedules_v1::Timeline ToTimeline(const v1::StepTimeline& step) {
  schedules_v1::Timeline timeline{
      .program = step.program(), .rank = step.rank(), .step = step.step(), .alone = step.alone()};
  timeline.instructions.resize(static_cast<size_t>(step.start_ns_size()));
  for (int i = 0; i < step.start_ns_size(); ++i) {
    timeline.instructions[static_cast<size_t>(i)] = {
        .start_ns = step.start_ns(i), .end_ns = step.end_ns(i), .cpu_ns = step.cpu_ns(i)};
  }
  return timeline;
}

absl::Status CheckRecorded(const JobPlan& plan, absl::Span<const v1::StepTimeline> steps) {
  const auto size = static_cast<int>(plan.train_program.instructions.size());
  for (const v1::StepTimeline& step : steps) {
    if (step.program() != plan.train_program.name || step.start_ns_size() != size ||
        step.end_ns_size() != size || step.cpu_ns_size() != size) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", step.rank(), " recorded a program \"", step.program(), "\" of ",
                       step.start_ns_size(), " instructions, this build plans \"", plan.train_program.name,
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
  const MemoryPlan memory = PlanMemory(plan);
  std::map<std::string, int64_t> persistent;
  for (const Buffer& buffer : PersistentBuffers(plan)) {
    persistent[buffer.category] += buffer.bytes;
  }
  std::vector<schedules_v1::Timeline> timelines;
  for (const v1::StepTimeline& step : steps) {
    timelines.push_back(ToTimeline(step));
  }
  std::vector<schedules_v1::TraceRun> runs;
  for (size_t i = 0; i < timelines.size(); ++i) {
    runs.push_back({.program = &plan.train_program,
                    .timeline = &timelines[i],
                    .offset_ns = steps[i].start_unix_ns() - first,
                    .memory = &memory.train,
                    .persistent = persistent});
  }
  return schedules_v1::TraceToJson(plan.outline_v1, runs);
}

schedules_v1::DeviceProfile RecordedProfile(const JobPlan& plan, absl::Span<const v1::StepTimeline> steps,
                                         schedules_v1::DeviceProfile base, int ranks_per_machine) {
  std::vector<schedules_v1::Timeline> alone;
  std::vector<schedules_v1::Timeline> overlapped;
  int processors = 0;
  for (const v1::StepTimeline& step : steps) {
    (step.alone() ? alone : overlapped).push_back(ToTimeline(step));
    processors = std::max(processors, step.processors());
  }
  base.measured = schedules_v1::MeasureTimes(plan.outline_v1, plan.train_program, WorkloadOf(plan),
                                          alone.empty() ? overlapped : alone);
  const schedules_v1::Gaps gaps = schedules_v1::MeasureGaps(plan.train_program, overlapped);
  base.gap_seconds = gaps.gap_seconds;
  base.wake_seconds = gaps.wake_seconds;
  base.skew_seconds = schedules_v1::MeasureSkew(plan.train_program, overlapped);
  base.describe = absl::StrCat("measured from ", steps.size(), " recorded steps of job ", plan.train.name,
                               "; rates: ", base.describe);
  base.name += "-measured";
  if (base.cores > 0 && processors > 0) {
    base.cores = static_cast<double>(processors) / std::max(1, ranks_per_machine);
  }
  return base;
}

}  // namespace tandem::plan
