// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfloat>
#include <cmath>

#include "fsdp/host_device.h"

namespace tandem::fsdp {

// x / y for y > 0 without a branch, given r = 1 / y to a unit in the last place. The steps are those of
// nvcc's own division for numbers far from overflow and underflow: one iteration of Newton's method for the
// reciprocal, then one correction of the quotient. The result is exactly rounded if the correction and the
// quotient are normal numbers. A subnormal quotient may be rounded to the wrong neighbour, because it can lie
// midway between two subnormal numbers.
TANDEM_HOST_DEVICE inline float QuickQuotient(float x, float y, float r) {
  r = fmaf(fmaf(-y, r, 1), r, r);
  const float q = x * r;
  return copysignf(fmaf(r, fmaf(-y, q, x), q), x);
}

// Within these bounds the quotients and roots of AdamW have the host's bits on a GPU, without a branch.
struct QuickBounds {
  static constexpr float kLeastEpsilon = 0x1p-40F;     // at most 1
  static constexpr float kLeastCorrection = 0x1p-20F;  // at most 1
  static constexpr float kLeastExpAvg = 0x1p-80F;      // least magnitude other than 0
  static constexpr float kLeastExpAvgSq = 0x1p-100F;   // least value other than 0
  static constexpr float kLargestMoment = 0x1p60F;     // largest magnitude

  // Largest value of sqrt(exp_avg_sq / correction2) + epsilon.
  static constexpr float kLargestRoot = 0x1p40F;
  static constexpr float kLargestDenominator = kLargestRoot + 1;
};
static_assert(QuickBounds::kLargestRoot * QuickBounds::kLargestRoot ==
              QuickBounds::kLargestMoment / QuickBounds::kLeastCorrection);
static_assert(QuickBounds::kLeastExpAvg / QuickBounds::kLargestDenominator >= 2 * FLT_MIN,
              "no quotient is subnormal");
static_assert(QuickBounds::kLargestMoment / QuickBounds::kLeastCorrection / QuickBounds::kLeastEpsilon <=
                  FLT_MAX,
              "no quotient is infinite");

}  // namespace tandem::fsdp
