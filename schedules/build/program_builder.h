// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/statusor.h"
#include "schedules/build/schedule.h"
#include "schedules/program/build_options.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// How node passes of several microbatches follow each other.
enum class Schedule : uint8_t {
  kSequential,           // one microbatch after the other, forward and then backward
  kOverlapped,           // the forward of one over the backward of the one before; weight halves are delayed
  kOverlappedUndelayed,  // the same without delay
};

// Other layers whose units may be used within one span (BuildOptions::hold): those of both microbatches.
inline int HoldOf(Schedule schedule) {
  return schedule == Schedule::kOverlapped || schedule == Schedule::kOverlappedUndelayed ? 1 : 0;
}

// Every program of one stage: builder, then all passes, then addresses. Pure, and the same on every rank of
// the stage. InvalidArgument, in one line, where the budget is below what the programs need at least; what
// does not fit together otherwise is a bug (TANDEM_CHECK).
absl::StatusOr<StagePrograms> BuildStage(const Outline& outline, const BuildOptions& options,
                                         Schedule schedule = Schedule::kSequential);

// The same with the passes of other schedules. validate: empty, where the job never validates.
absl::StatusOr<StagePrograms> BuildStage(const Outline& outline, const BuildOptions& options,
                                         const PassList& train, const PassList& validate);

}  // namespace tandem::schedules
