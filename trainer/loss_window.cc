// SPDX-License-Identifier: Apache-2.0
#include "trainer/loss_window.h"

#include <cmath>

namespace tandem::trainer {

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

}  // namespace tandem::trainer
