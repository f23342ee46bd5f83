// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "checkpoint/info.h"

namespace tandem::trainer {

// The mean and standard deviation of a value in the newest steps. A step is a spike if its value is more than
// kDeviations deviations above the mean.
struct Spread {
  static constexpr size_t kMost = 128;   // number of newest steps that count, at most
  static constexpr size_t kFewest = 16;  // with fewer steps there is no spread
  static constexpr double kDeviations = 6;
  static constexpr double kLeastDeviation = 0.01;  // so that values that hardly differ are no spikes

  double mean = 0;
  double deviation = 0;  // at least kLeastDeviation

  // The limit above which a value is a spike.
  double limit() const { return mean + kDeviations * deviation; }
};

// Unset if there are fewer than Spread::kFewest values.
std::optional<Spread> SpreadOf(std::span<const double> values);

// Decides whether a loss is a spike, from the losses of the newest steps. Compares the losses themselves,
// unlike NormWindow, which compares logarithms: a loss is already a mean of logarithms, and its noise from
// batch to batch does not shrink as the loss does.
class LossWindow {
 public:
  // Adds the loss of the next step. If it is a spike, returns the spread of the losses before it. A loss that
  // is not finite is not a spike and is not kept.
  std::optional<Spread> Add(double loss);

 private:
  std::vector<double> losses_;  // in the order of steps
};

// Computes the limit above which the gradient norm of a step is a spike, from the logarithms of the norms of
// the kSteps applied steps before it. The step directly before it does not count, because its run may still
// be in flight when this step's run is issued; a job that resumes leaves it out, too. Pure.
class NormWindow {
 public:
  static constexpr size_t kSteps = Spread::kMost;

  // Whether a job that skips spikes may skip this step. Returns false during the warm-up and the first kSteps
  // steps, because norms change much there.
  static bool MaySkip(int64_t step, int64_t warmup_steps) {
    return step > std::max<int64_t>(warmup_steps, kSteps);
  }

  // `before` has the norms of the steps that were done before.
  explicit NormWindow(std::vector<checkpoint::StepNorm> before) : norms_(std::move(before)) {}

  // Must be called when a run that computed `step` has ended, in the order of steps. The norm of a step that
  // was not applied, or a norm of 0, does not count.
  void Computed(int64_t step, double norm, bool applied);

  // The norm above which `step` is a spike. Unset: no norm is a spike.
  std::optional<double> LimitOf(int64_t step) const;

  // The newest norms that count, in the order of steps, as a checkpoint keeps them.
  const std::vector<checkpoint::StepNorm>& norms() const { return norms_; }

 private:
  std::vector<checkpoint::StepNorm> norms_;
};

}  // namespace tandem::trainer
