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

// Evaluates steps that the ranks of a job recorded: runs of `train`, or of `begin` if the previous step was
// applied by a run of its own (after a checkpoint or a validation). All functions require steps of this
// plan's programs, which CheckRecorded checks.

// The plan of the newest attempt of a job, on the device where it runs. Throws as MakeJobPlan does.
JobPlan PlanOfNewestAttempt(const v1::Job& job);

// Returns FailedPrecondition if a timeline is of another program.
absl::Status CheckRecorded(const JobPlan& plan, absl::Span<const v1::StepTimeline> steps);

// The program that was recorded.
const schedules::Program& ProgramOf(const JobPlan& plan, const v1::StepTimeline& step);

schedules::Timeline ToTimeline(const v1::StepTimeline& step);

// The steps and the memory in use in Chrome's trace event format. Ranks are placed in time by the clocks of
// their machines.
std::string RecordedTrace(const JobPlan& plan, absl::Span<const v1::StepTimeline> steps);

// Returns `base`, changed to what these runs of the plan's programs measured: the times of instructions from
// serialized steps, if there are any, and the gaps between instructions from the others. Without serialized
// steps, compute counts with its processor time (MeasureTimes), so work that sleeps or waits for a device
// seems to take no time.
schedules::DeviceProfile MeasuredProfile(const JobPlan& plan, absl::Span<const schedules::Timeline> timelines,
                                         schedules::DeviceProfile base);

// Does the same for recorded steps, and also sets DeviceProfile::cores if `base` has cores and the steps
// count processors. `ranks_per_machine` is how many ranks shared the processors that the timelines count.
schedules::DeviceProfile RecordedProfile(const JobPlan& plan, absl::Span<const v1::StepTimeline> steps,
                                         schedules::DeviceProfile base, int ranks_per_machine);

}  // namespace tandem::plan
