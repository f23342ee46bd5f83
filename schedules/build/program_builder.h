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
  kOverlapped,  // the forward of one over the backward of the previous one; weight halves are delayed
  kOverlappedUndelayed,  // the same with weight halves directly behind input halves
};

// The value of BuildOptions::hold: how many other layers may have their units used within one span. If two
// microbatches overlap, the other one's layer is in between.
inline int HoldOf(Schedule schedule) {
  return schedule == Schedule::kOverlapped || schedule == Schedule::kOverlappedUndelayed ? 1 : 0;
}

// Builds every program of one stage: schedule, then all passes, then addresses. Pure; every rank of the stage
// gets the same programs. Returns InvalidArgument, in one line, if the budget is below the least that the
// programs need. Arguments that contradict each other are a bug (TANDEM_CHECK).
absl::StatusOr<StagePrograms> BuildStage(const Outline& outline, const BuildOptions& options,
                                         Schedule schedule = Schedule::kSequential);

// Does the same with the passes of another schedule. `validate` is empty if the job never validates.
absl::StatusOr<StagePrograms> BuildStage(const Outline& outline, const BuildOptions& options,
                                         const PassList& train, const PassList& validate);

}  // namespace tandem::schedules
