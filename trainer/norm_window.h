// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/info.h"
#include "trainer/spread.h"

namespace tandem::trainer {

// The gradient norms of the newest applied steps, and the limit above which a step's norm is a spike. The
// limit is computed from the logarithms of the norms of the kSteps applied steps before it (spread.h). The
// step directly before does not count: its run may still be in flight when this step's run is issued, though
// in a job that resumes from a checkpoint it is not. Pure.
class NormWindow {
 public:
  static constexpr size_t kSteps = Spread::kMost;

  // Whether a job that skips spikes may skip this step. It may not during the warm-up and the first kSteps
  // steps, in which norms change much without a spike.
  static bool MaySkip(int64_t step, int64_t warmup_steps) {
    return step > std::max<int64_t>(warmup_steps, kSteps);
  }

  // `before` has the norms of the steps that were done before.
  explicit NormWindow(std::vector<checkpoint::StepNorm> before) : norms_(std::move(before)) {}

  // A run that computed `step` has ended. Must be called in the order of steps. A norm that was not applied,
  // or is 0, does not count.
  void Computed(int64_t step, double norm, bool applied);

  // The norm above which `step` is a spike. Unset: no norm is a spike.
  std::optional<double> LimitOf(int64_t step) const;

  // The newest norms that count, in the order of steps, as a checkpoint keeps them.
  const std::vector<checkpoint::StepNorm>& norms() const { return norms_; }

 private:
  std::vector<checkpoint::StepNorm> norms_;
};

}  // namespace tandem::trainer
