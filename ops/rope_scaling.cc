// SPDX-License-Identifier: Apache-2.0
#include "ops/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem::ops {
namespace {

// Divides a frequency by the factor if its wave is longer than the original text, keeps it if its wave is
// short, and interpolates in between.
double Llama3Frequency(double frequency, const RopeScaling& scaling) {
  const double waves = scaling.original_length * frequency / (2 * std::numbers::pi);  // in that text
  if (waves < scaling.low_freq_factor) {
    return frequency / scaling.factor;
  }
  if (waves > scaling.high_freq_factor) {
    return frequency;
  }
  const double smooth =
      (waves - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

// Returns the dim, not rounded, whose wave turns `rotations` times in the text (arXiv:2309.00071, section
// 3.2).
double DimOfRotations(double rotations, double theta, double dims, double length) {
  return dims * std::log(length / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

double MagnitudeScale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

}  // namespace

std::vector<double> RopeFrequencies(double theta, int64_t pairs, const RopeScaling& scaling) {
  const auto dims = static_cast<double>(2 * pairs);
  double low = 0;
  double high = 0;
  if (scaling.type == RopeScalingType::kYarn) {
    low = DimOfRotations(scaling.beta_fast, theta, dims, scaling.original_length);
    high = DimOfRotations(scaling.beta_slow, theta, dims, scaling.original_length);
    if (scaling.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dims - 1);
    high += low == high ? 0.001 : 0;
  }
  std::vector<double> frequencies;
  for (int64_t i = 0; i < pairs; ++i) {
    const double frequency = std::pow(theta, -static_cast<double>(i) / static_cast<double>(pairs));
    switch (scaling.type) {
      case RopeScalingType::kNone:
        frequencies.push_back(frequency);
        break;
      case RopeScalingType::kLinear:
        frequencies.push_back(frequency / scaling.factor);
        break;
      case RopeScalingType::kLlama3:
        frequencies.push_back(Llama3Frequency(frequency, scaling));
        break;
      case RopeScalingType::kYarn: {
        const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
        frequencies.push_back(frequency / scaling.factor * ramp + frequency * (1 - ramp));
        break;
      }
    }
  }
  return frequencies;
}

double RopeAttentionFactor(const RopeScaling& scaling) {
  if (scaling.type != RopeScalingType::kYarn) {
    return 1;
  }
  if (scaling.attention_factor > 0) {
    return scaling.attention_factor;
  }
  if (scaling.mscale > 0 && scaling.mscale_all_dim > 0) {
    return MagnitudeScale(scaling.factor, scaling.mscale) /
           MagnitudeScale(scaling.factor, scaling.mscale_all_dim);
  }
  return MagnitudeScale(scaling.factor, 1);
}

}  // namespace tandem::ops
