// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/statusor.h"
#include "schedules/build/schedule.h"
#include "schedules/program/build_options.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// The order of the node passes of several microbatches.
enum class Schedule : uint8_t {
  kSequential,  // one microbatch after the other, forward and then backward
  kOverlapped,  // a microbatch's forward beside the previous one's backward; weight halves are delayed
  kOverlappedUndelayed,  // kOverlapped, but weight halves are directly behind input halves
};

// The value of BuildOptions::hold: how many other layers may have their units used within one span
// (passes/spans.h). If two microbatches overlap, passes of the other microbatch, in another layer, lie
// between the uses of a unit.
inline int HoldOf(Schedule schedule) {
  return schedule == Schedule::kOverlapped || schedule == Schedule::kOverlappedUndelayed ? 1 : 0;
}

// Builds every program of one stage: schedule, then all passes, then addresses. Pure; every rank of the stage
// gets the same programs. Returns InvalidArgument, in one line, if the budget is below the least that the
// programs need. Arguments that contradict each other are a bug (TANDEM_CHECK).
absl::StatusOr<StagePrograms> BuildStage(const Outline& outline, const BuildOptions& options,
                                         Schedule schedule = Schedule::kSequential);

// Does the same for these passes, which the caller's own schedule has made. `validate` is empty if the job
// never validates.
absl::StatusOr<StagePrograms> BuildStage(const Outline& outline, const BuildOptions& options,
                                         const PassList& train, const PassList& validate);

}  // namespace tandem::schedules
