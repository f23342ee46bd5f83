// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace tandem::trainer {

// Mean and standard deviation of a value in the newest steps, by which that of another step is a spike: if it
// is more than kDeviations deviations above the mean.
struct Spread {
  static constexpr size_t kMost = 128;   // steps that count
  static constexpr size_t kFewest = 16;  // fewer say nothing
  static constexpr double kDeviations = 6;
  static constexpr double kLeastDeviation = 0.01;  // so that values which hardly differ make no spikes

  double mean = 0;
  double deviation = 0;  // at least kLeastDeviation

  // A larger value is a spike.
  double limit() const { return mean + kDeviations * deviation; }
};

// None: there are fewer than Spread::kFewest.
std::optional<Spread> SpreadOf(std::span<const double> values);

}  // namespace tandem::trainer
