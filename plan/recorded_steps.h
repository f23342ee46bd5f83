#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/job_plan.h"
#include "schedules_v1/device_profile.h"
#include "schedules_v1/timeline.h"
#include "tandem/v1/state.pb.h"

namespace tandem::plan {

// Steps that the ranks of a job recorded, and what follows from them. All require steps of this plan's
// training program, which CheckRecorded tells.

// FailedPrecondition where a timeline is of another program.
absl::Status CheckRecorded(const JobPlan& plan, absl::Span<const v1::StepTimeline> steps);

schedules_v1::Timeline ToTimeline(const v1::StepTimeline& step);

// In Chrome's trace event format, with the arena's memory; the first step starts at 0. Ranks are placed by
// the clocks of their machines.
std::string RecordedTrace(const JobPlan& plan, absl::Span<const v1::StepTimeline> steps);

// `base` with what these steps measured: the times of instructions from those that ran alone, where there are
// any, the gaps between instructions from the others. ranks_per_machine: how many ranks shared the processors
// that the timelines tell of.
schedules_v1::DeviceProfile RecordedProfile(const JobPlan& plan, absl::Span<const v1::StepTimeline> steps,
                                         schedules_v1::DeviceProfile base, int ranks_per_machine);

}  // namespace tandem::plan
