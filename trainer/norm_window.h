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

// The gradient norms of the newest steps that were applied, and above which norm a step is a spike: one whose
// logarithm is (spread.h), by those of the kSteps applied steps before it. The step just before it does not
// count: that one's run may still be in flight when this one's is issued, and in a job that goes on from a
// checkpoint it is not. Pure.
class NormWindow {
 public:
  static constexpr size_t kSteps = Spread::kMost;

  // What a job skips, if it does: spikes behind the warm-up and the first kSteps steps, in which norms change
  // much without one.
  static bool MaySkip(int64_t step, int64_t warmup_steps) {
    return step > std::max<int64_t>(warmup_steps, kSteps);
  }

  // What was done before.
  explicit NormWindow(std::vector<checkpoint::StepNorm> before) : norms_(std::move(before)) {}

  // A run that computed `step` has ended; in step order. A norm that is not applied, or is 0, does not count.
  void Computed(int64_t step, double norm, bool applied);

  // A larger norm of `step` is a spike. None: nothing is.
  std::optional<double> LimitOf(int64_t step) const;

  // The newest that count, in step order, as a checkpoint keeps them.
  const std::vector<checkpoint::StepNorm>& norms() const { return norms_; }

 private:
  std::vector<checkpoint::StepNorm> norms_;
};

}  // namespace tandem::trainer
