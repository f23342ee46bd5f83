// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/terminal/console.h"
#include "cli/terminal/styled_line.h"
#include "cli/watch/watch_state.h"

namespace tandem::cli {

// Draws what `watch` shows on a terminal at one moment: the job and its progress, loss, pace and largest
// parameter updates, or why it waits. Pure. At most size.rows - 1 lines, none wider than the terminal.
std::vector<StyledLine> RenderFrame(const WatchState& state, const TerminalSize& size, bool unicode,
                                    absl::Time now);

// "headers  RUNNING  2 ranks on cuda  2 workers", cut to the width.
StyledLine HeaderLine(const WatchState& state, int width);

// Why the job is in its state: "NotEnoughSlots: 2 slots are needed, 1 is free"; empty if there is no reason.
std::string ReasonText(const v1::Job& job);

// "no progress for 0:09: rank 1 on worker b is stopped, ...". Requires state.standstill.
std::string StandstillText(const WatchState& state, absl::Time now);

// Summarizes a job that has ended: state and steps, final losses, average pace, where the checkpoints are; if
// it failed, also why, in one paragraph. Pure. width 0: no limit, for output that is not a terminal.
std::vector<StyledLine> RenderSummary(const WatchState& state, int width);

// Returns the rank whose log says why the job failed; -1 if no rank is to blame.
int RankToBlame(const v1::Job& job);

// Returns the time from the start of the first attempt (or from creation, if none started) to the end.
absl::Duration RunTime(const v1::Job& job);

}  // namespace tandem::cli
