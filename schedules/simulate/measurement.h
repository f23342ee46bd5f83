// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "schedules/simulate/cost.h"
#include "schedules/simulate/timeline.h"

namespace tandem::schedules {

// Derives DeviceProfile::measured, sorted, from measured timelines of a program. Each time is the mean over
// the instructions of a kind, because a step is their sum and their distribution has a long tail. What is
// averaged is
// * for a collective, the shortest time over the ranks for that instruction and step: the rank that arrives
//   last waits for no other rank, so its time is the transfer's. All ranks' timelines must be given.
// * for other work, its processor time, because other streams slowed it down. If the run was serialized
//   (Timeline::serialized) or the processor time is unknown, the time that it ran. Work that sleeps or waits
//   for a device has no processor time, so its runs must be serialized.
//
// Requires timelines of `program`, each with a time for every instruction. Without timelines the result is
// empty.
std::vector<MeasuredTime> MeasureTimes(const Outline& outline, const Program& program,
                                       const Workload& workload, absl::Span<const Timeline> timelines);

// The mean time from the end of the instruction that an instruction was bound by to its own start: for
// DeviceProfile::gap_seconds if that was on its own stream, and for wake_seconds if it was on another. Needs
// timelines whose streams ran side by side (not Timeline::serialized). 0 if there is no such instruction.
struct Gaps {
  double gap_seconds = 0;
  double wake_seconds = 0;
};
Gaps MeasureGaps(const Program& program, absl::Span<const Timeline> timelines);

// How long an average rank waits in a collective for the last one, for DeviceProfile::skew_seconds. For each
// collective of each step this is the mean duration over the ranks minus the shortest; the result is the
// median of these, because long waits are caused by something else that took long and that is measured, too.
// Needs the timelines of every rank, with streams side by side; 0 from those of one rank.
double MeasureSkew(const Program& program, absl::Span<const Timeline> timelines);

}  // namespace tandem::schedules
