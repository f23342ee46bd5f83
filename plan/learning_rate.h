// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "tandem/v1/job.pb.h"

namespace tandem::plan {

// The learning rate of every step, as LearningRateSchedule of job.proto defines it.
struct LearningRateSchedule {
  double peak = 0;
  int64_t warmup_steps = 0;
  v1::Decay decay = v1::DECAY_CONSTANT;
  double minimum = 0;
  int64_t decay_steps = 0;                              // for WSD
  v1::DecayShape decay_shape = v1::DECAY_SHAPE_LINEAR;  // for WSD
};

LearningRateSchedule LearningRateScheduleOf(const v1::Training& resolved);

// The rate of step s of n, counted from 1, with w warm-up steps and d decay steps: peak · s / w up to step w,
// and then
//   constant      peak
//   cosine        minimum + (peak - minimum) · (1 + cos(π x)) / 2, x = (s - w) / (n - w)
//   linear        minimum + (peak - minimum) · (1 - x)
//   wsd           peak up to step n - d, then minimum + (peak - minimum) · (1 - y) or · (1 - √y),
//                 y = (s - (n - d)) / d   (warmup-stable-decay: Hägele et al., 2024)
//   inverse_sqrt  peak · √(max(w, 1) / s), at least minimum   (Vaswani et al., 2017)
// After step n, which a resumed job may ask for, cosine, linear and wsd stay at the minimum; constant and
// inverse_sqrt go on by their formulas. If n <= w, cosine and linear stay at the peak after the warm-up.
// Throws std::logic_error for an unknown decay.
double LearningRate(const LearningRateSchedule& schedule, int64_t step, int64_t steps);

// "0.001 at step 20, then cosine to 0 at step 200".
std::string LearningRateText(const LearningRateSchedule& schedule, int64_t steps);

}  // namespace tandem::plan
