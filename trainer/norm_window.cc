// SPDX-License-Identifier: Apache-2.0
#include "trainer/norm_window.h"

#include <algorithm>
#include <cmath>

namespace tandem::trainer {
namespace {

constexpr double kDeviations = 6;
constexpr double kLeastDeviation = 0.01;

}  // namespace

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
  const auto size = std::min<size_t>(end - norms_.begin(), kSteps);
  if (size < kFewest) {
    return std::nullopt;
  }
  const auto count = static_cast<double>(size);
  double mean = 0;
  for (auto each = end - static_cast<std::ptrdiff_t>(size); each != end; ++each) {
    mean += std::log(each->norm) / count;
  }
  double variance = 0;
  for (auto each = end - static_cast<std::ptrdiff_t>(size); each != end; ++each) {
    const double difference = std::log(each->norm) - mean;
    variance += difference * difference / count;
  }
  return std::exp(mean + kDeviations * std::max(std::sqrt(variance), kLeastDeviation));
}

}  // namespace tandem::trainer
