// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/strings/string_view.h"
#include "plan/job_plan.h"

namespace tandem::plan {

// The model FLOPs utilization (MFU) of a step is SecondsAtPeak divided by the time that the step takes. Plans
// (prediction.h) and step reports (trainer/reporter.h) both compute it.

// Seconds that an optimizer step would take if the devices of all ranks did the model's FLOPs
// (model::FlopsPerToken) at this rate. `peak` is FLOPs a second of one device in the type that layers compute
// in, > 0.
double SecondsAtPeak(const JobPlan& plan, double peak);

// The same at the vendor's figure for a device with that driver name; 0 if the figure is unknown
// (schedules::PeakFlops).
double SecondsAtPeakOf(const JobPlan& plan, absl::string_view device);

}  // namespace tandem::plan
