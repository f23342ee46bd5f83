// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "controller/core/state.h"
#include "tandem/v1/state.pb.h"

namespace tandem::controller {

// A job that trains counts as stalled when it has made no progress for the time of two steps (an instruction
// takes less than one), but for kShortestStall at least; in its first step, for kFirstStepStall. If the
// process of a rank is stopped, the job counts as stalled after kShortestStall. A job that loads or saves
// never does.
inline constexpr absl::Duration kShortestStall = absl::Seconds(5);
inline constexpr absl::Duration kFirstStepStall = absl::Seconds(30);

// Returns the progress of a job as of `now`, which is the progress of the rank that is behind the others: the
// rank whose process is stopped; otherwise the one in the earliest step (or phase, before the first step);
// otherwise the one that has started the fewest collectives; otherwise the one that has not moved for the
// longest time. Finished ranks and ranks of workers that are away do not count. nullopt if no rank is left.
// Pure.
std::optional<v1::Progress> ProgressOf(const State& state, const v1::Job& job, absl::Time now);

// "no progress for 23s: rank 1 on worker b is stopped, by a signal or a debugger, in step 37, ..."
std::string StallText(const v1::Progress& progress);

// The steps of a job that were reported. A step that is repeated counts once.
struct StepTotals {
  int64_t steps = 0;
  double seconds = 0;  // their total time
};

// Divides the time of `job` since its submission into parts (waiting, starting, steps, …). Pure.
v1::TimeAccount AccountTime(const v1::Job& job, const StepTotals& totals, absl::Time now);

}  // namespace tandem::controller
