// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "schedules/simulate/cost.h"
#include "schedules/simulate/timeline.h"

namespace tandem::schedules {

// What measured timelines of a program say of its kinds of instructions, for DeviceProfile::measured, sorted.
// Each is the mean over its instructions, since a step is their sum and their distribution has a long tail;
// of
//
//   a collective     the least of the ranks at that instruction and step: the rank that comes last waits
//                    for no other rank, so its time is the transfer's. Give the timelines of every rank.
//   other work       how long it ran if the run was serialized (Timeline::serialized) or its processor time
//                    is not known; else its processor time, since beside other streams it was slowed down:
//                    of what sleeps or waits for a device that is none, so its runs have to be serialized
//
// Requires timelines of `program`, each with a time for every instruction; nothing follows from none.
std::vector<MeasuredTime> MeasureTimes(const Outline& outline, const Program& program,
                                       const Workload& workload, absl::Span<const Timeline> timelines);

// What passes between the end of what an instruction was bound by and its start, means, for
// DeviceProfile::gap_seconds (bound by its own stream) and wake_seconds (by another). From timelines whose
// streams ran side by side (not Timeline::serialized); 0 where there is no such instruction.
struct Gaps {
  double gap_seconds = 0;
  double wake_seconds = 0;
};
Gaps MeasureGaps(const Program& program, absl::Span<const Timeline> timelines);

// How long an average rank waits in a collective for the last one, for DeviceProfile::skew_seconds: the mean
// over the ranks of its duration, less the least, of all collectives of all steps the median: the
// long waits are there because something else took long, and that is measured, too. Give the timelines of
// every rank, with streams side by side; 0 from those of one rank.
double MeasureSkew(const Program& program, absl::Span<const Timeline> timelines);

}  // namespace tandem::schedules
