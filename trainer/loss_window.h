// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "trainer/spread.h"

namespace tandem::trainer {

// The losses of the newest steps, and whether that of the next one is a spike (spread.h). The losses
// themselves count, not their logarithms as those of norms do: a loss is a mean of logarithms already, whose
// noise from batch to batch does not shrink with it.
class LossWindow {
 public:
  // The loss of the step behind those before. What the losses before it say, if it is a spike. One that is
  // not finite is none, and does not count.
  std::optional<Spread> Add(double loss);

 private:
  std::vector<double> losses_;  // in step order
};

}  // namespace tandem::trainer
