// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "trainer/spread.h"

namespace tandem::trainer {

// The losses of the newest steps, which decide whether the next loss is a spike (spread.h). The losses
// themselves are compared, and not their logarithms as for norms: a loss is already a mean of logarithms, and
// its noise from batch to batch does not shrink with it.
class LossWindow {
 public:
  // Adds the loss of the next step. If it is a spike, returns the spread of the losses before it. A loss that
  // is not finite is not a spike and is not kept.
  std::optional<Spread> Add(double loss);

 private:
  std::vector<double> losses_;  // in the order of steps
};

}  // namespace tandem::trainer
