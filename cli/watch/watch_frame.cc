// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/watch_frame.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "checkpoint/folder.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/job_text.h"
#include "cli/terminal/message_text.h"
#include "cli/terminal/number_text.h"
#include "platform/counted_text.h"
#include "proto/time.h"

namespace tandem::cli {
namespace {

constexpr int kWidest = 100;  // a longer bar shows nothing more
constexpr int kTopUpdates = 5;
constexpr absl::Duration kQuietFor = absl::Seconds(5);

std::string Bar(double share, int width, bool unicode) {
  const int filled = std::clamp(static_cast<int>(share * width), 0, width);
  std::string bar;
  for (int i = 0; i < width; ++i) {
    bar += i < filled ? (unicode ? "━" : "=") : (unicode ? "─" : "-");
  }
  return bar;
}

StyledLine ProgressLine(const WatchState& state, int width, bool unicode, absl::Time now) {
  const int64_t total = TotalSteps(state);
  const int64_t step = state.last.has_value() ? state.last->step() : state.job.last_step();
  const double share = total > 0 ? std::min(1.0, static_cast<double>(step) / static_cast<double>(total)) : 0;
  std::vector<Part> parts;
  parts.push_back(
      {StyledLine(total > 0 ? absl::StrFormat("step %d/%d", step, total) : absl::StrCat("step ", step)), 9});
  if (total > 0) {
    parts.push_back({StyledLine(absl::StrFormat("%d%%", static_cast<int>(share * 100))), 5});
  }
  if (const std::optional<absl::Duration> left = TimeLeft(state, now); left.has_value() && step < total) {
    parts.push_back({StyledLine(absl::StrCat("ETA ", ClockText(*left))), 7});
  }
  const StyledLine numbers = Fit(parts, width, 2);
  const int bar = width - numbers.width() - 2;
  StyledLine line;
  if (bar >= 8) {
    const int filled = std::clamp(static_cast<int>(share * bar), 0, bar);
    line.Add(Bar(1, filled, unicode), Style::kBusy).Add(Bar(0, bar - filled, unicode), Style::kDim).Add("  ");
  }
  return line.Append(numbers);
}

StyledLine LossLine(const WatchState& state, int width, bool unicode) {
  StyledLine loss = StyledLine("loss ", Style::kDim).Add(LossText(state.last->loss()), Style::kStrong);
  std::vector<Part> parts = {{loss, 9}};
  StyledLine validation;
  if (state.validation.has_value()) {
    validation.Add("validation ", Style::kDim).Add(LossText(state.validation->loss), Style::kStrong);
    validation.Add(absl::StrFormat(" at %d", state.validation->step), Style::kDim);
  }
  const int spark =
      std::min(40, width - loss.width() - 2 - (validation.empty() ? 0 : validation.width() + 2));
  if (spark >= 6) {
    parts.push_back({StyledLine(state.losses.Sparkline(spark, unicode), Style::kBusy), 5});
  }
  parts.push_back({validation, 7});
  return Fit(parts, width, 2);
}

StyledLine PaceLine(const WatchState& state, int width) {
  std::vector<Part> parts;
  const auto add = [&](std::string label, std::string value, std::string unit, int priority) {
    StyledLine line;
    line.Add(std::move(label), Style::kDim).Add(std::move(value)).Add(std::move(unit), Style::kDim);
    parts.push_back({line, priority});
  };
  add("", RateText(TokensPerSecond(state)), " tokens/s", 9);
  add("", StepTimeText(SecondsPerStep(state)), "/step", 5);
  add("grad norm ", MagnitudeText(state.last->grad_norm()), "", 7);
  add("lr ", ScientificText(state.last->learning_rate()), "", 3);
  if (state.checkpoint.has_value()) {
    add("saved at ", absl::StrCat(state.checkpoint->step()), "", 4);
  }
  return Fit(parts, width, 3);
}

void AddNorms(const WatchState& state, int width, int rows, bool unicode, std::vector<StyledLine>& lines) {
  if (state.norms.weight_size() == 0 || state.table.parameters_size() == 0 || rows < 3) {
    return;
  }
  const bool wide = width >= 72;
  const int numbers = wide ? 4 * 10 : 10;
  const int names = std::min(48, width - numbers);
  const auto heading = [&](std::string text) { return PadLeft(text, 10); };
  StyledLine head(
      PadRight(Cut(absl::StrCat("largest updates, step ", state.norms_step), names, unicode), names),
      Style::kDim);
  if (wide) {
    head.Add(heading("weight") + heading("gradient") + heading("update"), Style::kDim);
  }
  head.Add(heading(wide ? "relative" : "rel."), Style::kDim);
  lines.push_back(head);
  for (const int i : LargestUpdates(state.norms, std::min(kTopUpdates, rows - 1))) {
    const std::string name =
        i < state.table.parameters_size() ? Escape(state.table.parameters(i).name()) : "?";
    StyledLine row(PadRight(CutLeft(name, names, unicode), names));
    const auto cell = [&](const auto& values) {
      return heading(i < values.size() ? MagnitudeText(values.Get(i)) : "");
    };
    if (wide) {
      row.Add(cell(state.norms.weight()) + cell(state.norms.gradient()) + cell(state.norms.update()));
    }
    row.Add(heading(ScientificText(UpdateRatio(state.norms, i))));
    lines.push_back(row);
  }
}

// Warnings that stay on the display as long as they are true.
void AddNotices(const WatchState& state, int width, absl::Time now, std::vector<StyledLine>& lines) {
  if (!state.notice.empty()) {
    lines.push_back(StyledLine(state.notice, Style::kStrong));
  }
  if (state.lost.has_value()) {
    const std::string text =
        absl::StrCat("controller away for ", ClockText(now - state.lost->since), "; ", WhileAway(state));
    lines.push_back(StyledLine(text, Style::kBad));
    return;
  }
  for (const std::string& warning : CheckpointWarnings(state.job.checkpoints())) {
    for (const std::string& line : Wrap(warning, width, "")) {
      lines.push_back(StyledLine(line, Style::kBad));
    }
  }
  if (state.last.has_value() && state.last->nonfinite() > 0) {
    lines.push_back(StyledLine(absl::StrFormat("step %d: %d gradient elements not finite; weights left alone",
                                               state.last->step(), state.last->nonfinite()),
                               Style::kBad));
  }
  if (const std::string skipped = SkippedText(state); !skipped.empty()) {
    lines.push_back(StyledLine(skipped, Style::kBad));
  }
  if (IsStalled(state) && !HasEnded(state.job.state())) {
    for (const std::string& line : Wrap(StandstillText(state, now), width, "")) {
      lines.push_back(StyledLine(line, Style::kBad));
    }
    return;
  }
  if (!state.arrivals.empty() && state.job.state() == v1::JOB_STATE_RUNNING) {
    const absl::Duration quiet = now - state.arrivals.back().time;
    if (quiet > std::max(kQuietFor, absl::Seconds(10 * SecondsPerStep(state)))) {
      const bool done = state.last->step() >= TotalSteps(state);
      lines.push_back(StyledLine(
          absl::StrCat(done ? "last step done, finishing for " : "no new step for ", ClockText(quiet)),
          Style::kDim));
    }
  }
}

// Returns the attempt whose ranks have slots; null if the job waits for slots, or never had any.
const v1::Attempt* PlacedAttempt(const v1::Job& job) {
  return job.attempts_size() > 0 && job.state() != v1::JOB_STATE_QUEUED
             ? &job.attempts(job.attempts_size() - 1)
             : nullptr;
}

Style StateStyle(v1::JobState state) {
  const bool good = state == v1::JOB_STATE_RUNNING || state == v1::JOB_STATE_SUCCEEDED;
  return good ? Style::kGood : state == v1::JOB_STATE_FAILED ? Style::kBad : Style::kBusy;
}

// "2 ranks on cuda"; "2 ranks" until `auto` is decided.
std::string RanksText(const v1::Job& job) {
  const int ranks = job.resolved().parallelism().ranks();
  if (ranks == 0) {
    return "";
  }
  const v1::Attempt* attempt = PlacedAttempt(job);
  const v1::Device device = attempt != nullptr ? attempt->device() : job.resolved().resources().device();
  const bool known =
      device == v1::DEVICE_CPU || device == v1::DEVICE_CUDA;  // auto is decided when it is placed
  return absl::StrCat(platform::CountedText(ranks, "rank"), known ? " on " : "",
                      known ? DeviceText(device) : "");
}

// "2 workers"; empty if the job has no slots.
std::string WorkersText(const v1::Job& job) {
  std::set<std::string> workers;
  if (const v1::Attempt* attempt = PlacedAttempt(job)) {
    for (const v1::RankSlot& slot : attempt->slots()) {
      workers.insert(slot.worker());
    }
  }
  return workers.empty() ? "" : platform::CountedText(static_cast<int64_t>(workers.size()), "worker");
}

}  // namespace

std::string ReasonText(const v1::Job& job) {
  const std::string reason = Escape(job.reason());
  const std::string message = Escape(job.message());
  return absl::StrCat(reason, !reason.empty() && !message.empty() ? ": " : "", message);
}

std::string StandstillText(const WatchState& state, absl::Time now) {
  return absl::StrCat("no progress for ", ClockText(now - state.standstill->since), ": ",
                      BehindText(state.standstill->progress));
}

StyledLine HeaderLine(const WatchState& state, int width) {
  const v1::Job& job = state.job;
  std::vector<Part> parts = {
      {StyledLine(Escape(job.name()), Style::kStrong), 8},
      {StyledLine(StateText(job.state()), StateStyle(job.state())), 9},
      {StyledLine(RanksText(job)), 5},
      {StyledLine(WorkersText(job)), 4},
      {StyledLine(job.attempt() > 1 ? absl::StrCat("attempt ", job.attempt()) : ""), 6},
      {StyledLine(Escape(job.id()), Style::kDim), 3},
  };
  return Fit(parts, width, 2);
}

std::vector<StyledLine> RenderFrame(const WatchState& state, const TerminalSize& size, bool unicode,
                                    absl::Time now) {
  const int width = std::min(size.columns, kWidest);
  std::vector<StyledLine> lines;
  if (!state.known) {
    lines.push_back(StyledLine(state.lost.has_value() ? "connecting again..." : "connecting..."));
    return lines;
  }
  lines.push_back(HeaderLine(state, width));
  if (state.job.state() != v1::JOB_STATE_RUNNING || !state.last.has_value()) {
    for (const std::string& line : Wrap(ReasonText(state.job), width, "")) {
      lines.push_back(StyledLine(line));
    }
  }
  if (state.last.has_value()) {
    lines.push_back(ProgressLine(state, width, unicode, now));
    lines.push_back(LossLine(state, width, unicode));
    lines.push_back(PaceLine(state, width));
  } else if (state.job.state() == v1::JOB_STATE_RUNNING) {
    lines.push_back(ProgressLine(state, width, unicode, now));
    if (state.validation.has_value()) {
      lines.push_back(StyledLine("validation ", Style::kDim).Add(LossText(state.validation->loss)));
    }
  }
  AddNotices(state, width, now, lines);
  if (state.job.state() == v1::JOB_STATE_RUNNING) {
    AddNorms(state, width, size.rows - 1 - static_cast<int>(lines.size()), unicode, lines);
  }
  if (static_cast<int>(lines.size()) > std::max(1, size.rows - 1)) {
    lines.resize(static_cast<size_t>(std::max(1, size.rows - 1)));
  }
  return lines;
}

int RankToBlame(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_FAILED && job.has_cause() && job.cause().has_rank() ? job.cause().rank()
                                                                                          : -1;
}

absl::Duration RunTime(const v1::Job& job) {
  const bool started = job.attempts_size() > 0 && IsSet(job.attempts(0).started());
  const absl::Time begin = proto::FromProto(started ? job.attempts(0).started() : job.created());
  return IsSet(job.ended()) ? std::max(absl::ZeroDuration(), proto::FromProto(job.ended()) - begin)
                            : absl::ZeroDuration();
}

std::vector<StyledLine> RenderSummary(const WatchState& state, int width) {
  const v1::Job& job = state.job;
  std::vector<StyledLine> lines;
  const int64_t steps = state.last.has_value() ? state.last->step() : job.last_step();
  const int64_t total = TotalSteps(state);

  StyledLine head;
  head.Add(Escape(job.name()), Style::kStrong).Add(" ").Add(StateText(job.state()), StateStyle(job.state()));
  if (job.state() == v1::JOB_STATE_SUCCEEDED || steps >= total) {
    head.Add(absl::StrFormat(" after %d steps", steps));
  } else {
    head.Add(absl::StrFormat(" at step %d of %d", steps, total));
  }
  if (IsSet(job.ended())) {
    head.Add(absl::StrCat(" in ", SpanText(RunTime(job))));
  }
  lines.push_back(head);

  const auto add_wrapped = [&](const std::string& text) {
    for (const std::string& line : Wrap(text, width, "  ")) {
      lines.push_back(StyledLine(line));
    }
  };
  if (job.state() == v1::JOB_STATE_FAILED) {
    const std::string reason =
        Escape(job.has_cause() && !job.cause().reason().empty() ? job.cause().reason() : job.reason());
    std::string why = job.has_cause() ? CauseText(job.cause()) : "";
    if (why.empty()) {
      why = Escape(job.message());
    }
    add_wrapped(absl::StrCat(reason, !reason.empty() && !why.empty() ? ": " : "", why));
  } else if (job.state() == v1::JOB_STATE_CANCELLED) {
    add_wrapped(ReasonText(job));
  }

  const auto row = [&](absl::string_view label, std::string value) {
    lines.push_back(StyledLine(PadRight(absl::StrCat("  ", label), 14), Style::kDim).Add(std::move(value)));
  };
  if (state.last.has_value()) {
    row("loss", LossText(state.last->loss()));
  }
  if (state.validation.has_value()) {
    std::string text =
        absl::StrFormat("%s at step %d", LossText(state.validation->loss), state.validation->step);
    if (state.first_validation.has_value() && state.first_validation->step < state.validation->step) {
      absl::StrAppendFormat(&text, ", from %s at step %d", LossText(state.first_validation->loss),
                            state.first_validation->step);
    }
    row("validation", std::move(text));
    if (std::string texts = ValidationTextsText(state.validation->texts); !texts.empty()) {
      row("of texts", std::move(texts));
    }
  }
  if (std::string skipped = SkippedText(state); !skipped.empty()) {
    row("gradients", absl::StrCat("not finite: ", skipped));
  }
  if (state.reports > 0) {
    row("speed", absl::StrFormat("%s tokens/s on average", RateText(AverageTokensPerSecond(state))));
  }
  const std::string& directory = job.resolved().checkpoint().directory();
  if (const int64_t saved = job.checkpoints().last_step(); saved > 0) {
    row("checkpoint",
        absl::StrFormat("%s/%s (step %d)", Escape(directory), checkpoint::StepName(saved), saved));
  } else if (!directory.empty()) {
    row("checkpoints", Escape(directory));
  }
  if (const std::string failed = FailedSavesText(job.checkpoints()); !failed.empty()) {
    row("saves", failed);
  }
  for (const v1::CheckpointWarning& warning : job.checkpoints().resume()) {
    row("resumed", Escape(warning.message()));
  }
  return lines;
}

}  // namespace tandem::cli
