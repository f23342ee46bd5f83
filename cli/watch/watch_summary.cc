// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/watch_summary.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/job_text.h"
#include "cli/terminal/message_text.h"
#include "cli/terminal/number_text.h"
#include "cli/watch/watch_frame.h"
#include "proto/time.h"

namespace tandem::cli {

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
  if (state.checkpoint.has_value()) {
    row("checkpoint",
        absl::StrFormat("%s (step %d)", Escape(state.checkpoint->path()), state.checkpoint->step()));
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
