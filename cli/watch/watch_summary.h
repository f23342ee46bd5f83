// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/time/time.h"
#include "cli/terminal/styled_line.h"
#include "cli/watch/watch_state.h"

namespace tandem::cli {

// The summary of a job that has ended: state and steps, final losses, average pace, where the
// checkpoints are; for one that failed why, in one paragraph. Pure. width 0: no limit (output that is no
// terminal).
std::vector<StyledLine> RenderSummary(const WatchState& state, int width);

// The rank whose log says why the job failed; -1 if no rank is to blame.
int RankToBlame(const v1::Job& job);

// The time from the first attempt's start to the end (from creation if no attempt started).
absl::Duration RunTime(const v1::Job& job);

}  // namespace tandem::cli
