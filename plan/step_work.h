// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "plan/job_plan.h"

namespace tandem::plan {

// The bytes that one rank sends to others in an optimizer step, by the purpose of its communicator ("gather",
// "reduce", "dispatch"), computed from the train program's operands. In a collective over n ranks each rank
// sends (n - 1) / n of the buffer. If routers decide how many rows travel, it is what they send when they
// spread tokens evenly. Validations, checkpoints, reports and messages of a few bytes do not count. Empty for
// one rank.
std::map<std::string, double> SentBytes(const JobPlan& plan);

// Seconds that an optimizer step would take if the devices of all ranks did the model's FLOPs at this rate.
// Divided by the measured time it is the model FLOPs utilization. `peak` is FLOPs a second of one device in
// the type that layers compute in, > 0.
double SecondsAtPeak(const JobPlan& plan, double peak);

// The same at the vendor's figure for a device with that driver name; 0 if the figure is unknown
// (schedules::PeakFlops).
double SecondsAtPeakOf(const JobPlan& plan, absl::string_view device);

}  // namespace tandem::plan
