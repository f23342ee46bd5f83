// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "plan/job_plan.h"

namespace tandem::plan {

// Bytes that one rank sends to others in an optimizer step, by what its communicator is for ("gather",
// "reduce", "dispatch"), as the train program's operands say: of a collective over n ranks each sends
// (n - 1) / n of the buffer. Where routers decide how many rows travel it is what they send when they spread
// tokens evenly. Validations, checkpoints, reports and messages of a few bytes are not in it. Empty for one
// rank.
std::map<std::string, double> SentBytes(const JobPlan& plan);

// Seconds that an optimizer step would take if the devices of all ranks did the model's FLOPs at this rate:
// over the measured time, model FLOPs utilization. peak: FLOPs a second of one device in the type that
// layers compute in, > 0.
double SecondsAtPeak(const JobPlan& plan, double peak);

// The same at the vendor's figure for a device of that name, as its driver says it; 0 where that is not known
// (schedules::PeakFlops).
double SecondsAtPeakOf(const JobPlan& plan, absl::string_view device);

}  // namespace tandem::plan
