// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/job_plan.h"
#include "schedules/simulate/device_profile.h"
#include "schedules/simulate/timeline.h"
#include "tandem/v1/report.pb.h"
#include "tandem/v1/state.pb.h"

namespace tandem::plan {

// Steps that the ranks of a job recorded, and what follows from them: runs of `train`, or of `begin` where
// the step before it was applied by a run of its own (after a checkpoint or a validation). All require steps
// of this plan's programs, which CheckRecorded makes sure of.

// The plan of the newest attempt of a job, on the device where it runs. Throws as MakeJobPlan does.
JobPlan PlanOfNewestAttempt(const v1::Job& job);

// FailedPrecondition where a timeline is of another program.
absl::Status CheckRecorded(const JobPlan& plan, absl::Span<const v1::StepTimeline> steps);

// The program that was recorded.
const schedules::Program& ProgramOf(const JobPlan& plan, const v1::StepTimeline& step);

schedules::Timeline ToTimeline(const v1::StepTimeline& step);

// In Chrome's trace event format, with the memory in use. Ranks are placed by the clocks of their machines.
std::string RecordedTrace(const JobPlan& plan, absl::Span<const v1::StepTimeline> steps);

// `base` with what these runs of the plan's programs measured: the times of instructions from serialized
// steps, if there are any, the gaps between instructions from the others. Without serialized steps compute
// counts its processor time (MeasureTimes), so what sleeps or waits for a device seems to take none.
schedules::DeviceProfile MeasuredProfile(const JobPlan& plan, absl::Span<const schedules::Timeline> timelines,
                                         schedules::DeviceProfile base);

// The same of recorded steps, with their processors. ranks_per_machine: how many ranks shared those that the
// timelines count.
schedules::DeviceProfile RecordedProfile(const JobPlan& plan, absl::Span<const v1::StepTimeline> steps,
                                         schedules::DeviceProfile base, int ranks_per_machine);

}  // namespace tandem::plan
