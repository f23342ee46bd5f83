// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>

#include "plan/job_plan.h"

namespace tandem::plan {

double LearningRate(const OptimizerConfig& config, int64_t step, int64_t steps) {
  if (step < config.warmup_steps) {
    return config.learning_rate * static_cast<double>(step) / static_cast<double>(config.warmup_steps);
  }
  if (config.decay == Decay::kConstant || steps <= config.warmup_steps) {
    return config.learning_rate;
  }
  const double progress =
      static_cast<double>(step - config.warmup_steps) / static_cast<double>(steps - config.warmup_steps);
  const double share = 0.5 * (1 + std::cos(std::numbers::pi * std::min(progress, 1.0)));
  return config.min_learning_rate + (config.learning_rate - config.min_learning_rate) * share;
}

}  // namespace tandem::plan
