// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/watch_state.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/number_text.h"

namespace tandem::cli {
namespace {

constexpr size_t kRecentSteps = 32;
constexpr size_t kArrivals = 256;
constexpr absl::Duration kPaceWindow = absl::Seconds(60);

bool TakeJob(const v1::Job& job, WatchState& state) {
  if (state.known && job.revision() < state.job.revision()) {
    return false;  // sent again after a reconnection
  }
  const bool changed = !state.known || job.state() != state.job.state() ||
                       job.reason() != state.job.reason() || job.message() != state.job.message() ||
                       job.attempt() != state.job.attempt();
  state.job = job;
  state.known = true;
  return changed;
}

// A rank that has moved more recently does not stand still.
constexpr absl::Duration kStandstill = absl::Seconds(3);

Applied TakeProgress(const v1::Progress& progress, absl::Time now, WatchState& state) {
  const absl::Duration age =
      absl::Seconds(progress.age().seconds()) + absl::Nanoseconds(progress.age().nanos());
  const bool was_stalled = IsStalled(state);
  // The controller gets progress once a second, so a report of the same step may have come before it.
  const bool outdated = state.last.has_value() && progress.step() <= state.last->step();
  if (age < kStandstill || outdated) {
    state.standstill.reset();
  } else {
    state.standstill = WatchState::Standstill{now - age, progress};
  }
  return {.stalled = was_stalled != IsStalled(state)};
}

}  // namespace

std::map<std::string, double> ValidationTexts(const v1::StepReport& report) {
  constexpr absl::string_view kPrefix = "validation_loss/";
  std::map<std::string, double> texts;
  for (const auto& [name, value] : report.scalars()) {
    if (absl::StartsWith(name, kPrefix)) {
      texts.emplace(name.substr(kPrefix.size()), value);
    }
  }
  return texts;
}

std::string ValidationTextsText(const std::map<std::string, double>& texts) {
  constexpr size_t kMost = 8;
  std::vector<std::string> parts;
  for (const auto& [name, loss] : texts) {
    if (parts.size() == kMost) {
      parts.push_back(absl::StrCat(texts.size() - kMost, " more"));
      break;
    }
    parts.push_back(absl::StrCat(Escape(name), " ", LossText(loss)));
  }
  return absl::StrJoin(parts, ", ");
}

Applied ApplyValidation(const v1::StepReport& report, WatchState& state) {
  Applied applied;
  const auto validation = report.scalars().find("validation_loss");
  const bool first_attempt_seen = !state.last.has_value() || report.attempt() >= state.last->attempt();
  if (validation != report.scalars().end() && first_attempt_seen &&
      (!state.validation.has_value() || report.step() > state.validation->step ||
       (state.last.has_value() && report.attempt() > state.last->attempt()))) {
    state.validation = Validation{report.step(), validation->second, ValidationTexts(report)};
    if (!state.first_validation.has_value()) {
      state.first_validation = state.validation;
    }
    applied.validation = true;
  }
  return applied;
}

Applied ApplyReport(const v1::StepReport& report, absl::Time now, bool live, WatchState& state) {
  Applied applied = ApplyValidation(report, state);
  const auto position = std::pair(report.attempt(), report.step());
  // Step 0 is the validation before the first step: it has no optimizer step, and so no loss.
  if (report.step() < 1 ||
      (state.last.has_value() && position <= std::pair(state.last->attempt(), state.last->step()))) {
    return applied;
  }
  applied.report = true;
  if (live) {
    applied.stalled = IsStalled(state);
    state.standstill.reset();
  }
  state.last = report;
  state.last->clear_norms();
  state.losses.Add(report.loss());
  ++state.reports;
  state.tokens += report.tokens();
  state.seconds += report.seconds();
  state.recent.push_back({report.tokens(), report.seconds()});
  if (state.recent.size() > kRecentSteps) {
    state.recent.pop_front();
  }
  if (live) {
    if (!state.arrivals.empty() && report.step() <= state.arrivals.back().step) {
      state.arrivals.clear();  // a new attempt repeats steps
    }
    state.arrivals.push_back({now, report.step()});
    while (state.arrivals.size() > kArrivals ||
           (state.arrivals.size() > 2 && now - state.arrivals.front().time > kPaceWindow)) {
      state.arrivals.pop_front();
    }
  }
  if (report.norms().weight_size() > 0) {
    state.norms = report.norms();
    state.norms_step = report.step();
  }
  return applied;
}

Applied Apply(const v1::WatchResponse& response, absl::Time now, bool live, WatchState& state) {
  if (!response.cursor().empty()) {
    state.cursor = response.cursor();
  }
  Applied applied;
  switch (response.item_case()) {
    case v1::WatchResponse::kSnapshot:
      applied.job = TakeJob(response.snapshot(), state);
      break;
    case v1::WatchResponse::kChanged:
      applied.job = TakeJob(response.changed(), state);
      break;
    case v1::WatchResponse::kEvent:
      if (response.event().has_checkpoint() &&
          (!state.checkpoint.has_value() ||
           response.event().checkpoint().step() > state.checkpoint->step())) {
        state.checkpoint = response.event().checkpoint();
        applied.checkpoint = true;
      }
      if (response.event().has_checkpoint_warning() ||
          (response.event().has_training_warning() && !response.event().training_warning().is_data())) {
        state.warning = response.event();
        applied.warning = true;
      }
      break;
    case v1::WatchResponse::kReport:
      return ApplyReport(response.report(), now, live, state);
    case v1::WatchResponse::kProgress:
      return TakeProgress(response.progress(), now, state);
    case v1::WatchResponse::kTable:
      state.table = response.table();
      break;
    case v1::WatchResponse::kSynced:
    case v1::WatchResponse::ITEM_NOT_SET:
      break;
  }
  return applied;
}

bool IsStalled(const WatchState& state) {
  return state.standstill.has_value() && state.standstill->progress.stalled();
}

std::string WhileAway(const WatchState& state) {
  const bool trains = state.job.state() == v1::JOB_STATE_RUNNING && !state.ends_with_controller;
  return trains ? "training goes on; reconnecting" : "reconnecting";
}

int64_t TotalSteps(const WatchState& state) { return state.job.resolved().training().steps(); }

double SecondsPerStep(const WatchState& state) {
  double seconds = 0;
  for (const WatchState::Recent& step : state.recent) {
    seconds += step.seconds;
  }
  return state.recent.empty() ? 0 : seconds / static_cast<double>(state.recent.size());
}

std::string SkippedText(const WatchState& state) {
  if (!state.last.has_value()) {
    return "";
  }
  const auto skipped = state.last->scalars().find("skipped_steps");
  if (skipped == state.last->scalars().end()) {
    return "";
  }
  return absl::StrFormat("%.0f of %d steps skipped (%.1f %%)", skipped->second, state.last->step(),
                         100 * skipped->second / static_cast<double>(state.last->step()));
}

double TokensPerSecond(const WatchState& state) {
  double tokens = 0;
  double seconds = 0;
  for (const WatchState::Recent& step : state.recent) {
    tokens += static_cast<double>(step.tokens);
    seconds += step.seconds;
  }
  return seconds > 0 ? tokens / seconds : 0;
}

double AverageTokensPerSecond(const WatchState& state) {
  return state.seconds > 0 ? static_cast<double>(state.tokens) / state.seconds : 0;
}

std::optional<absl::Duration> TimeLeft(const WatchState& state, absl::Time now) {
  const int64_t total = TotalSteps(state);
  if (!state.last.has_value() || total <= 0) {
    return std::nullopt;
  }
  if (IsStalled(state)) {
    return std::nullopt;
  }
  const int64_t left = std::max<int64_t>(0, total - state.last->step());
  absl::Duration per_step = absl::Seconds(SecondsPerStep(state));
  if (state.arrivals.size() >= 2) {
    const WatchState::Arrival& first = state.arrivals.front();
    const WatchState::Arrival& last = state.arrivals.back();
    // Reports come in batches, so a short window says nothing.
    if (last.time - first.time >= absl::Seconds(3) && last.step > first.step) {
      per_step = (last.time - first.time) / (last.step - first.step);
    }
  }
  if (per_step <= absl::ZeroDuration()) {
    return std::nullopt;
  }
  // Counts down between two steps, too, but never by more than the step in progress.
  absl::Duration since = absl::ZeroDuration();
  if (!state.arrivals.empty()) {
    since = std::clamp(now - state.arrivals.back().time, absl::ZeroDuration(), left > 0 ? per_step : since);
  }
  return per_step * left - since;
}

double UpdateRatio(const v1::Norms& norms, int i) {
  if (i >= norms.update_size() || i >= norms.weight_size() || norms.weight(i) == 0) {
    return 0;
  }
  return norms.update(i) / norms.weight(i);
}

std::vector<int> LargestUpdates(const v1::Norms& norms, int count) {
  std::vector<int> order(static_cast<size_t>(norms.weight_size()));
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int i) {
    const double ratio = UpdateRatio(norms, i);
    return std::isnan(ratio) ? INFINITY : ratio;  // a NaN comes first
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key(a) > key(b); });
  order.resize(std::min(order.size(), static_cast<size_t>(std::max(0, count))));
  return order;
}

void LossHistory::Add(double loss) {
  pending_sum_ += loss;
  if (++pending_count_ < per_point_) {
    return;
  }
  points_.push_back(pending_sum_ / pending_count_);
  pending_sum_ = 0;
  pending_count_ = 0;
  if (points_.size() == kCapacity) {
    for (size_t i = 0; i < kCapacity / 2; ++i) {
      points_[i] = (points_[2 * i] + points_[2 * i + 1]) / 2;
    }
    points_.resize(kCapacity / 2);
    per_point_ *= 2;
  }
}

std::string LossHistory::Sparkline(int width, bool unicode) const {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr const char* kAscii[] = {"_", ".", ",", "-", "=", "+", "*", "#"};
  std::vector<double> points = points_;
  if (pending_count_ > 0) {
    points.push_back(pending_sum_ / pending_count_);
  }
  if (points.empty() || width <= 0) {
    return "";
  }
  const size_t columns = std::min(points.size(), static_cast<size_t>(width));
  std::vector<double> heights;
  double low = INFINITY;
  double high = -INFINITY;
  for (size_t c = 0; c < columns; ++c) {
    const size_t begin = c * points.size() / columns;
    const size_t end = std::max(begin + 1, (c + 1) * points.size() / columns);
    double sum = 0;
    for (size_t i = begin; i < end; ++i) {
      sum += points[i];
    }
    heights.push_back(sum / static_cast<double>(end - begin));
    if (std::isfinite(heights.back())) {
      low = std::min(low, heights.back());
      high = std::max(high, heights.back());
    }
  }
  std::string out;
  for (const double height : heights) {
    if (!std::isfinite(height)) {
      out += "!";
      continue;
    }
    const double share = high > low ? (height - low) / (high - low) : 0.5;
    const int level = std::clamp(static_cast<int>(share * 8), 0, 7);
    out += unicode ? kBlocks[level] : kAscii[level];
  }
  return out;
}

}  // namespace tandem::cli
