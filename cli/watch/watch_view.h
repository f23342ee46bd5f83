// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/terminal/console.h"
#include "cli/watch/watch_state.h"
#include "tandem/v1/report.pb.h"

namespace tandem::cli {

// Shows a job while it is followed. FollowJob calls Show after every change and at least ten times a second.
class WatchView {
 public:
  virtual ~WatchView() = default;

  // `applied` says what has changed since the last call; it is all false if only time has passed.
  virtual void Show(const WatchState& state, const Applied& applied, absl::Time now) = 0;

  // The job, or the watch, has ended: brings the display into the state in which it stays. Only ShowLog may
  // be called afterwards.
  virtual void Finish(const WatchState& state, absl::Time now) = 0;

  // The last lines of the log of the rank that failed, after Finish.
  virtual void ShowLog(int rank, const std::vector<std::string>& lines) = 0;
};

// Makes one of the views below: if `json`, an object a line; otherwise, on a terminal, a display that is
// redrawn in place; elsewhere, lines.
std::unique_ptr<WatchView> MakeWatchView(Console& console, bool json);

std::unique_ptr<WatchView> MakeLiveView(Console& console);
std::unique_ptr<WatchView> MakeLineView(Console& console);
std::unique_ptr<WatchView> MakeJsonView(Console& console);

// Shows nothing.
std::unique_ptr<WatchView> MakeSilentView();

// Returns one step as a JSON object on one line, in full precision: step, loss, grad_norm, learning_rate,
// tokens, seconds, and, if the report has them, nonfinite, attempt (after the first) and the scalars
// ("validation_loss"). Its first key is "kind" unless `kind` is empty. NaN and infinity, which JSON lacks,
// become null. No newline.
std::string ReportJson(const v1::StepReport& report, const std::string& kind);

}  // namespace tandem::cli
