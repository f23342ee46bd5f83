// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/job_text.h"
#include "cli/terminal/message_text.h"
#include "cli/terminal/number_text.h"
#include "cli/watch/watch_frame.h"
#include "cli/watch/watch_view.h"

namespace tandem::cli {
namespace {

// Returns the time between lines, so that they do not fill a log: a second at first, later more.
absl::Duration Pace(absl::Duration since_first) {
  return since_first < absl::Minutes(1)    ? absl::Seconds(1)
         : since_first < absl::Minutes(10) ? absl::Seconds(10)
                                           : absl::Seconds(60);
}

class LineView : public WatchView {
 public:
  explicit LineView(Console& console) : console_(console) {}

  void Show(const WatchState& state, const Applied& applied, absl::Time now) override {
    if (applied.connection) {
      Note(console_, state.lost.has_value() ? absl::StrCat("the controller is away (",
                                                           Escape(state.lost->why), "); ", WhileAway(state))
                                            : "the controller is back");
    }
    if (applied.job && !HasEnded(state.job.state())) {
      StepLine(state, now);  // the line of an earlier step must not follow
      const std::string reason = ReasonText(state.job);
      Print(absl::StrCat(HeaderLine(state, 1000).Render(0, false, true), reason.empty() ? "" : "  ", reason));
      if (!std::exchange(warned_, true)) {  // they are older than the watch; later warnings come as events
        for (const std::string& warning : CheckpointWarnings(state.job.checkpoints())) {
          Print(absl::StrCat("checkpoints: ", warning));
        }
      }
    }
    if (applied.stalled && IsStalled(state)) {
      StepLine(state, now);  // the line of an earlier step must not follow
      Print(StandstillText(state, now));
    } else if (applied.stalled) {
      Print("the ranks move again");
    }
    if (applied.report) {
      const bool first = !first_line_.has_value();
      if (first) {
        first_line_ = now;
      }
      if (first || applied.validation || state.last->step() == TotalSteps(state) ||
          state.last->nonfinite() > 0 || now - last_line_ >= Pace(now - *first_line_)) {
        StepLine(state, now);
      }
    }
    if (applied.validation) {
      const std::string texts = ValidationTextsText(state.validation->texts);
      Print(absl::StrFormat("step %d/%d  validation loss %s%s", state.validation->step, TotalSteps(state),
                            LossText(state.validation->loss), texts.empty() ? "" : " (" + texts + ")"));
    }
    if (applied.checkpoint) {
      Print(absl::StrFormat("step %d/%d  checkpoint %s", state.checkpoint->step(), TotalSteps(state),
                            state.checkpoint->path()));
    }
    if (applied.warning) {
      Print(absl::StrCat(state.warning.has_training_warning() ? "training: " : "checkpoints: ",
                         Escape(state.warning.reason()),
                         state.warning.step() > 0 ? absl::StrCat(" at step ", state.warning.step()) : "",
                         ": ", Escape(state.warning.message())));
    }
  }

  void Finish(const WatchState& state, absl::Time now) override {
    StepLine(state, now);
    if (state.known && HasEnded(state.job.state())) {
      for (const StyledLine& line : RenderSummary(state, 0)) {
        Print(line.Render(0, false, true));
      }
    }
  }

  void ShowLog(int rank, const std::vector<std::string>& lines) override {
    Print(absl::StrCat("  last lines of rank ", rank, ":"));
    for (const std::string& line : lines) {
      Print(absl::StrCat("    ", ReadableLogLine(line)));
    }
  }

 private:
  // Prints the newest step, unless it has been printed.
  void StepLine(const WatchState& state, absl::Time now) {
    if (!state.last.has_value() ||
        (state.last->step() == printed_step_ && state.last->attempt() == printed_attempt_)) {
      return;
    }
    printed_step_ = state.last->step();
    printed_attempt_ = state.last->attempt();
    last_line_ = now;
    std::string line = absl::StrFormat(
        "step %d/%d  loss %s  grad norm %s  lr %s  %s tokens/s", state.last->step(), TotalSteps(state),
        LossText(state.last->loss()), MagnitudeText(state.last->grad_norm()),
        ScientificText(state.last->learning_rate()), RateText(TokensPerSecond(state)));
    const std::optional<absl::Duration> left = TimeLeft(state, now);
    if (left.has_value() && state.last->step() < TotalSteps(state)) {
      absl::StrAppend(&line, "  ETA ", ClockText(*left));
    }
    if (state.last->nonfinite() > 0) {
      absl::StrAppendFormat(&line, "  %d gradient elements not finite, weights left alone",
                            state.last->nonfinite());
      if (const std::string skipped = SkippedText(state); !skipped.empty()) {
        absl::StrAppend(&line, "; ", skipped);
      }
    }
    Print(line);
  }

  void Print(absl::string_view line) { console_.Write(Stream::kOut, absl::StrCat(line, "\n")); }

  Console& console_;
  std::optional<absl::Time> first_line_;
  absl::Time last_line_ = absl::InfinitePast();
  int64_t printed_step_ = 0;
  int printed_attempt_ = 0;
  bool warned_ = false;
};

class SilentView : public WatchView {
 public:
  void Show(const WatchState&, const Applied&, absl::Time) override {}
  void Finish(const WatchState&, absl::Time) override {}
  void ShowLog(int, const std::vector<std::string>&) override {}
};

}  // namespace

std::unique_ptr<WatchView> MakeLineView(Console& console) { return std::make_unique<LineView>(console); }

std::unique_ptr<WatchView> MakeSilentView() { return std::make_unique<SilentView>(); }

std::unique_ptr<WatchView> MakeWatchView(Console& console, bool json) {
  return json                               ? MakeJsonView(console)
         : console.IsTerminal(Stream::kOut) ? MakeLiveView(console)
                                            : MakeLineView(console);
}

}  // namespace tandem::cli
