// SPDX-License-Identifier: Apache-2.0
#include "trainer/spikes.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tandem::trainer {

std::optional<Spread> SpreadOf(std::span<const double> values) {
  if (values.size() < Spread::kFewest) {
    return std::nullopt;
  }
  const auto count = static_cast<double>(values.size());
  double mean = 0;
  for (const double value : values) {
    mean += value / count;
  }
  double variance = 0;
  for (const double value : values) {
    const double difference = value - mean;
    variance += difference * difference / count;
  }
  return Spread{.mean = mean, .deviation = std::max(std::sqrt(variance), Spread::kLeastDeviation)};
}

std::optional<Spread> LossWindow::Add(double loss) {
  if (!std::isfinite(loss)) {
    return std::nullopt;
  }
  const std::optional<Spread> before = SpreadOf(losses_);
  losses_.push_back(loss);
  if (losses_.size() > Spread::kMost) {
    losses_.erase(losses_.begin());
  }
  return before.has_value() && loss > before->limit() ? before : std::nullopt;
}

void NormWindow::Computed(int64_t step, double norm, bool applied) {
  if (!applied || norm <= 0) {
    return;
  }
  norms_.push_back({.step = step, .norm = norm});
  if (norms_.size() > kSteps + 1) {  // the newest does not count for the step behind it
    norms_.erase(norms_.begin());
  }
}

std::optional<double> NormWindow::LimitOf(int64_t step) const {
  const auto end = std::find_if(norms_.begin(), norms_.end(),
                                [&](const checkpoint::StepNorm& each) { return each.step > step - 2; });
  const auto size = std::min<std::ptrdiff_t>(end - norms_.begin(), kSteps);
  std::vector<double> logarithms;
  for (auto each = end - size; each != end; ++each) {
    logarithms.push_back(std::log(each->norm));
  }
  const std::optional<Spread> spread = SpreadOf(logarithms);
  return spread.has_value() ? std::optional(std::exp(spread->limit())) : std::nullopt;
}

}  // namespace tandem::trainer
