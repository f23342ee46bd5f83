// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/terminal/styled_line.h"
#include "cli/watch/watch_state.h"

namespace tandem::cli {

struct FrameShape {
  int columns = 80;
  int rows = 24;
  bool unicode = true;
};

// The display of `watch` on a terminal at one moment: the job and its progress, loss, pace, the largest
// parameter updates; while the job waits, why. Pure. No line is wider than the terminal, and at most rows - 1
// lines come back.
std::vector<StyledLine> RenderFrame(const WatchState& state, const FrameShape& shape, absl::Time now);

// "headers  RUNNING  2 ranks on cuda  2 workers", cut to the width.
StyledLine HeaderLine(const WatchState& state, int width);

// "NotEnoughSlots: 2 slots are needed, 1 is free": why the job is in its state; empty if there is no
// reason.
std::string ReasonText(const v1::Job& job);

// "2 ranks on cuda": the device that the ranks train on; "2 ranks" while `auto` is undecided.
std::string RanksText(const v1::Job& job);

// "2 workers", on which the ranks run; empty without placement.
std::string WorkersText(const v1::Job& job);

// "no progress for 0:09: rank 1 on worker b is stopped, ...". Requires state.standstill.
std::string StandstillText(const WatchState& state, absl::Time now);

Style StateStyle(v1::JobState state);

// The summary of a job that has ended: state and steps, final losses, average pace, where the
// checkpoints are; for one that failed why, in one paragraph. Pure. width 0: no limit (output that is no
// terminal).
std::vector<StyledLine> RenderSummary(const WatchState& state, int width);

// The rank whose log says why the job failed; -1 if no rank is to blame.
int RankToBlame(const v1::Job& job);

// The time from the first attempt's start to the end (from creation if no attempt started).
absl::Duration RunTime(const v1::Job& job);

}  // namespace tandem::cli
