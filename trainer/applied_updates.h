// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::trainer {

// Counts the steps of a job that were applied, that is, that changed its weights. All ranks have the same
// count. When the update of a step is issued, the run that computed the step may still be in flight, but all
// earlier runs have ended. So everything before that step is known; and if the step itself is skipped, its
// number does not matter. Pure.
class AppliedUpdates {
 public:
  // `steps` were done before, of which `skipped` were skipped.
  AppliedUpdates(int64_t steps, int64_t skipped) : step_(steps), before_(steps - skipped), all_(before_) {}

  // A run that computed `step` has ended. Must be called in the order of steps.
  void Computed(int64_t step, bool applied) {
    before_ = all_;
    all_ += applied ? 1 : 0;
    step_ = step;
  }

  // Adam's t of a step, from 1. `step` is the last step that has ended, or the one after it.
  int64_t UpdateOf(int64_t step) const { return (step == step_ ? before_ : all_) + 1; }

  int64_t updates() const { return all_; }
  int64_t skipped() const { return step_ - all_; }

 private:
  int64_t step_;
  int64_t before_;  // number of updates before step_
  int64_t all_;     // number of updates up to and including step_
};

}  // namespace tandem::trainer
