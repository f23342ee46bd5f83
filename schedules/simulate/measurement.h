// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "schedules/simulate/cost.h"
#include "schedules/simulate/timeline.h"

namespace tandem::schedules {

// Derives DeviceProfile::measured from measured timelines of a program: one entry for each kind (KindOf) and
// amount of work, sorted by kind. An entry's time is the mean over its instructions and their runs, not the
// median: durations have a long tail, and only means add up to the duration of a step. What is averaged is
// * for an instruction that communicates with other ranks, the shortest duration over the ranks in each step:
//   the rank that arrives last waits for no other, so its duration is that of the transfer. The timelines of
//   all ranks must be given.
// * for any other instruction, its processor time, because other streams lengthen its duration; but its
//   duration (end - start) if the run was serialized (Timeline::serialized) or the processor time is unknown.
//   An instruction that sleeps or waits for a device takes no processor time meanwhile, so it needs
//   serialized runs.
//
// Requires timelines of `program`, each with a time for every instruction. Without timelines the result is
// empty.
std::vector<MeasuredTime> MeasureTimes(const Outline& outline, const Program& program,
                                       const Workload& workload, absl::Span<const Timeline> timelines);

// How long, on average, an instruction starts after the end of the one that determined its start (BoundBy in
// timeline.h): gap_seconds if both are on one stream, wake_seconds if they are on two. These are the fields
// of the same names in DeviceProfile; a field is 0 if no start was determined in its way. A start before that
// end counts as 0 seconds. Leaves out HostWaits and the streams that copy to or from the host. Needs
// timelines whose streams ran side by side (not Timeline::serialized).
struct Gaps {
  double gap_seconds = 0;
  double wake_seconds = 0;
};
Gaps MeasureGaps(const Program& program, absl::Span<const Timeline> timelines);

// How long an average rank waits in a collective for the last rank to arrive (DeviceProfile::skew_seconds).
// For each collective of each step this is the mean duration over the ranks minus the shortest. The result is
// the median of these, not the mean: a long wait comes from other work that took long on the last rank, and
// the measured time of that work already includes it. Needs the timelines of every rank, with streams side by
// side; the result is 0 for one rank.
double MeasureSkew(const Program& program, absl::Span<const Timeline> timelines);

}  // namespace tandem::schedules
