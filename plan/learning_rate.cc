// SPDX-License-Identifier: Apache-2.0
#include "plan/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "plan/quantity_text.h"
#include "proto/names.h"

namespace tandem::plan {
namespace {

// How far the step is on the way from `begin` to `end`, from 0 to 1.
double Progress(int64_t step, int64_t begin, int64_t end) {
  return std::min(static_cast<double>(step - begin) / static_cast<double>(end - begin), 1.0);
}

}  // namespace

LearningRateSchedule LearningRateScheduleOf(const v1::Training& resolved) {
  const v1::LearningRateSchedule& schedule = resolved.schedule();
  return {
      .peak = resolved.optimizer().learning_rate(),
      .warmup_steps = schedule.warmup_steps(),
      .decay = schedule.decay(),
      .minimum = schedule.min_learning_rate(),
      .decay_steps = schedule.decay_steps(),
      .decay_shape = schedule.decay_shape(),
  };
}

double LearningRate(const LearningRateSchedule& schedule, int64_t step, int64_t steps) {
  const int64_t warmup = schedule.warmup_steps;
  if (step < warmup) {
    return schedule.peak * static_cast<double>(step) / static_cast<double>(warmup);
  }
  const auto fallen = [&](double share) {
    return schedule.minimum + (schedule.peak - schedule.minimum) * share;
  };
  switch (schedule.decay) {
    case v1::DECAY_CONSTANT:
      return schedule.peak;
    case v1::DECAY_COSINE:
      return steps <= warmup ? schedule.peak
                             : fallen(0.5 * (1 + std::cos(std::numbers::pi * Progress(step, warmup, steps))));
    case v1::DECAY_LINEAR:
      return steps <= warmup ? schedule.peak : fallen(1 - Progress(step, warmup, steps));
    case v1::DECAY_WSD: {
      const int64_t begin = steps - schedule.decay_steps;
      if (step <= begin) {
        return schedule.peak;
      }
      const double progress = Progress(step, begin, steps);
      return fallen(1 - (schedule.decay_shape == v1::DECAY_SHAPE_SQRT ? std::sqrt(progress) : progress));
    }
    case v1::DECAY_INVERSE_SQRT:
      return std::max(schedule.minimum,
                      schedule.peak * std::sqrt(static_cast<double>(std::max<int64_t>(warmup, 1)) /
                                                static_cast<double>(step)));
    default:
      throw std::logic_error(
          absl::StrCat("training.schedule.decay: no plan for ", v1::Decay_Name(schedule.decay)));
  }
}

std::string LearningRateText(const LearningRateSchedule& schedule, int64_t steps) {
  std::string text = absl::StrCat(schedule.peak);
  if (schedule.warmup_steps > 0) {
    absl::StrAppend(&text, " at step ", GroupedText(schedule.warmup_steps));
  }
  if (schedule.decay == v1::DECAY_CONSTANT) {
    return text;
  }
  const bool is_wsd = schedule.decay == v1::DECAY_WSD;
  if (is_wsd) {
    absl::StrAppend(&text, ", constant to step ", GroupedText(steps - schedule.decay_steps));
  }
  return absl::StrCat(text, ", then ",
                      is_wsd ? proto::LowerName(schedule.decay_shape) : proto::LowerName(schedule.decay),
                      " to ", LearningRate(schedule, steps, steps), " at step ", GroupedText(steps));
}

}  // namespace tandem::plan
