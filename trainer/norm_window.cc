// SPDX-License-Identifier: Apache-2.0
#include "trainer/norm_window.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tandem::trainer {
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
