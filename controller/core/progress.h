// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "controller/core/state.h"
#include "tandem/v1/state.pb.h"

namespace tandem::controller {

// How long a job whose ranks wait for one another may stand still before it counts as stalled: an instruction
// takes less than a step, so twice a step explains it. Before the first step nothing is known of the pace.
inline constexpr absl::Duration kShortestStall = absl::Seconds(5);
inline constexpr absl::Duration kFirstStepStall = absl::Seconds(30);

// The progress of a job as of `now`: that of the rank that is behind the others, which is the one whose
// process is stopped; else the one in the earliest step, or phase before the first step; else the one that
// has begun the fewest collectives; else the one that moved first of all. Ranks that have finished, and those
// of workers that are away, say nothing. None where no rank is left. Pure.
std::optional<v1::Progress> ProgressOf(const State& state, const v1::Job& job, absl::Time now);

// "no progress for 23s: rank 1 on worker b is stopped, by a signal or a debugger, in step 37, ..."
std::string StallText(const v1::Progress& progress);

}  // namespace tandem::controller
