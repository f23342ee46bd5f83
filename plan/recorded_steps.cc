// SPDX-License-Identifier: Apache-2.0
#include "plan/recorded_steps.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/prediction.h"
#include "platform/counted_text.h"
#include "schedules/simulate/measurement.h"
#include "schedules/simulate/memory_curve.h"
#include "schedules/simulate/timeline.h"
#include "schedules/simulate/trace.h"

namespace tandem::plan {
namespace {

std::array<const schedules::Program*, 2> Recordable(const JobPlan& plan) {
  return {&plan.stage.train, &plan.stage.begin};
}

const schedules::Program* Find(const JobPlan& plan, const std::string& name) {
  for (const schedules::Program* program : Recordable(plan)) {
    if (program->name == name) {
      return program;
    }
  }
  return nullptr;
}

// The timelines of one program.
std::vector<schedules::Timeline> Select(absl::Span<const schedules::Timeline> timelines,
                                        const schedules::Program& program, bool serialized) {
  std::vector<schedules::Timeline> selected;
  for (const schedules::Timeline& timeline : timelines) {
    if (timeline.program == program.name && timeline.serialized == serialized) {
      selected.push_back(timeline);
    }
  }
  return selected;
}

// Adds to `measured`, which is sorted, what has another kind or other work than all of it.
void AddMissing(const std::vector<schedules::MeasuredTime>& times,
                std::vector<schedules::MeasuredTime>& measured) {
  const auto is_less = [](const schedules::MeasuredTime& a, const schedules::MeasuredTime& b) {
    return std::tie(a.kind, a.work) < std::tie(b.kind, b.work);
  };
  std::vector<schedules::MeasuredTime> missing;
  for (const schedules::MeasuredTime& time : times) {
    if (!std::binary_search(measured.begin(), measured.end(), time, is_less)) {
      missing.push_back(time);
    }
  }
  measured.insert(measured.end(), missing.begin(), missing.end());
  std::sort(measured.begin(), measured.end(), is_less);
}

}  // namespace

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
  for (const v1::StepTimeline& step : steps) {
    const schedules::Program* program = Find(plan, step.program());
    const int size = program == nullptr ? -1 : static_cast<int>(program->instructions.size());
    if (step.start_ns_size() != size || step.end_ns_size() != size || step.cpu_ns_size() != size) {
      return absl::FailedPreconditionError(absl::StrCat(
          "rank ", step.rank(), " recorded a program \"", step.program(), "\" of ", step.start_ns_size(),
          " instructions, this build plans ",
          absl::StrJoin(Recordable(plan), " and ",
                        [](std::string* out, const schedules::Program* planned) {
                          absl::StrAppend(out, "\"", planned->name, "\" of ", planned->instructions.size());
                        }),
          " for the job; use the build that the job runs with"));
    }
  }
  return absl::OkStatus();
}

JobPlan PlanOfNewestAttempt(const v1::Job& job) {
  v1::JobSpec resolved = job.resolved();
  if (!job.attempts().empty()) {
    resolved.mutable_resources()->set_device(job.attempts().rbegin()->device());
  }
  return MakeJobPlan(resolved);
}

const schedules::Program& ProgramOf(const JobPlan& plan, const v1::StepTimeline& step) {
  const schedules::Program* program = Find(plan, step.program());
  if (program == nullptr) {
    throw std::logic_error(absl::StrCat("no step of a job records a program \"", step.program(), "\""));
  }
  return *program;
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
    memory.push_back(schedules::MemoryOverTime(ProgramOf(plan, step), timelines.back()));
  }
  std::vector<schedules::TraceRun> runs;
  for (size_t i = 0; i < timelines.size(); ++i) {
    runs.push_back({.program = &ProgramOf(plan, steps[i]),
                    .timeline = &timelines[i],
                    .offset_ns = steps[i].start_unix_ns() - first,
                    .memory = &memory[i]});
  }
  return schedules::TraceToJson(plan.outline, runs);
}

schedules::DeviceProfile MeasuredProfile(const JobPlan& plan, absl::Span<const schedules::Timeline> timelines,
                                         schedules::DeviceProfile base) {
  // A whole step says more than one without its optimizer.
  base.measured.clear();
  for (const bool serialized : {true, false}) {
    for (const schedules::Program* program : Recordable(plan)) {
      AddMissing(schedules::MeasureTimes(plan.outline, *program, WorkloadOf(plan),
                                         Select(timelines, *program, serialized)),
                 base.measured);
    }
  }
  for (const schedules::Program* program : Recordable(plan)) {
    const std::vector<schedules::Timeline> side_by_side = Select(timelines, *program, /*serialized=*/false);
    if (!side_by_side.empty()) {
      const schedules::Gaps gaps = schedules::MeasureGaps(*program, side_by_side);
      base.gap_seconds = gaps.gap_seconds;
      base.wake_seconds = gaps.wake_seconds;
      base.skew_seconds = schedules::MeasureSkew(*program, side_by_side);
      break;
    }
  }
  base.name += "-measured";
  return base;
}

schedules::DeviceProfile RecordedProfile(const JobPlan& plan, absl::Span<const v1::StepTimeline> steps,
                                         schedules::DeviceProfile base, int ranks_per_machine) {
  std::vector<schedules::Timeline> timelines;
  int processors = 0;
  std::set<int64_t> numbers;
  std::set<int> ranks;
  for (const v1::StepTimeline& step : steps) {
    timelines.push_back(ToTimeline(step));
    numbers.insert(step.step());
    ranks.insert(step.rank());
    processors = std::max(processors, step.processors());
  }
  base.describe = absl::StrCat("measured from ", platform::CountedText(numbers.size(), "step"), " that ",
                               platform::CountedText(ranks.size(), "rank"), " of job ", plan.train.name,
                               " recorded; rates: ", base.describe);
  if (base.cores > 0 && processors > 0) {
    base.cores = static_cast<double>(processors) / std::max(1, ranks_per_machine);
  }
  return MeasuredProfile(plan, timelines, std::move(base));
}

}  // namespace tandem::plan
