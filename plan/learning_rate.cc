// SPDX-License-Identifier: Apache-2.0
#include "plan/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "plan/quantity_text.h"

namespace tandem::plan {
namespace {

Decay DecayOf(v1::Decay decay) {
  switch (decay) {
    case v1::DECAY_CONSTANT:
      return Decay::kConstant;
    case v1::DECAY_COSINE:
      return Decay::kCosine;
    case v1::DECAY_LINEAR:
      return Decay::kLinear;
    case v1::DECAY_WSD:
      return Decay::kWsd;
    case v1::DECAY_INVERSE_SQRT:
      return Decay::kInverseSqrt;
    default:
      throw std::logic_error(absl::StrCat("training.schedule.decay: no plan for ", v1::Decay_Name(decay)));
  }
}

// Other decays have none.
DecayShape DecayShapeOf(const v1::LearningRateSchedule& schedule) {
  if (!schedule.has_decay_shape()) {
    return DecayShape::kLinear;
  }
  switch (schedule.decay_shape()) {
    case v1::DECAY_SHAPE_LINEAR:
      return DecayShape::kLinear;
    case v1::DECAY_SHAPE_SQRT:
      return DecayShape::kSqrt;
    default:
      throw std::logic_error(absl::StrCat("training.schedule.decay_shape: no plan for ",
                                          v1::DecayShape_Name(schedule.decay_shape())));
  }
}

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
      .decay = DecayOf(schedule.decay()),
      .minimum = schedule.min_learning_rate(),
      .decay_steps = schedule.decay_steps(),
      .decay_shape = DecayShapeOf(schedule),
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
    case Decay::kConstant:
      return schedule.peak;
    case Decay::kCosine:
      return steps <= warmup ? schedule.peak
                             : fallen(0.5 * (1 + std::cos(std::numbers::pi * Progress(step, warmup, steps))));
    case Decay::kLinear:
      return steps <= warmup ? schedule.peak : fallen(1 - Progress(step, warmup, steps));
    case Decay::kWsd: {
      const int64_t begin = steps - schedule.decay_steps;
      if (step <= begin) {
        return schedule.peak;
      }
      const double progress = Progress(step, begin, steps);
      return fallen(1 - (schedule.decay_shape == DecayShape::kSqrt ? std::sqrt(progress) : progress));
    }
    case Decay::kInverseSqrt:
      return std::max(schedule.minimum,
                      schedule.peak * std::sqrt(static_cast<double>(std::max<int64_t>(warmup, 1)) /
                                                static_cast<double>(step)));
  }
  throw std::logic_error("a decay without a formula");
}

std::string LearningRateText(const LearningRateSchedule& schedule, int64_t steps) {
  std::string text = absl::StrCat(schedule.peak);
  if (schedule.warmup_steps > 0) {
    absl::StrAppend(&text, " at step ", GroupedText(schedule.warmup_steps));
  }
  const char* word = "";
  switch (schedule.decay) {
    case Decay::kConstant:
      return text;
    case Decay::kCosine:
      word = "cosine";
      break;
    case Decay::kLinear:
      word = "linear";
      break;
    case Decay::kWsd:
      absl::StrAppend(&text, ", constant to step ", GroupedText(steps - schedule.decay_steps));
      word = schedule.decay_shape == DecayShape::kSqrt ? "sqrt" : "linear";
      break;
    case Decay::kInverseSqrt:
      word = "inverse_sqrt";
      break;
  }
  return absl::StrCat(text, ", then ", word, " to ", LearningRate(schedule, steps, steps), " at step ",
                      GroupedText(steps));
}

}  // namespace tandem::plan
