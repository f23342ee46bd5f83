// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::trainer {

// How many steps of a job have changed its weights: those that were applied. All ranks know it
// alike. When a step's update is issued the run that computed it may still be in flight, all runs before it
// have ended: so what came before that step is known, and if the step itself is skipped, its number does not
// matter. Pure.
class AppliedUpdates {
 public:
  // What was done before: steps, and how many of them were skipped.
  AppliedUpdates(int64_t steps, int64_t skipped) : step_(steps), before_(steps - skipped), all_(before_) {}

  // A run that computed `step` has ended; in step order.
  void Computed(int64_t step, bool applied) {
    before_ = all_;
    all_ += applied ? 1 : 0;
    step_ = step;
  }

  // Adam's t of that step, from 1: the step that has ended last, or the one behind it.
  int64_t UpdateOf(int64_t step) const { return (step == step_ ? before_ : all_) + 1; }

  int64_t updates() const { return all_; }
  int64_t skipped() const { return step_ - all_; }

 private:
  int64_t step_;
  int64_t before_;  // updates before step_
  int64_t all_;     // with step_
};

}  // namespace tandem::trainer
