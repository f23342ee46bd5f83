// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace tandem::trainer {

// The mean and standard deviation of a value in the newest steps. A step is a spike if its value is more than
// kDeviations deviations above the mean.
struct Spread {
  static constexpr size_t kMost = 128;   // at most so many steps count
  static constexpr size_t kFewest = 16;  // with fewer steps there is no spread
  static constexpr double kDeviations = 6;
  static constexpr double kLeastDeviation = 0.01;  // prevents spikes of values that hardly differ

  double mean = 0;
  double deviation = 0;  // at least kLeastDeviation

  // The limit above which a value is a spike.
  double limit() const { return mean + kDeviations * deviation; }
};

// Unset if there are fewer than Spread::kFewest values.
std::optional<Spread> SpreadOf(std::span<const double> values);

}  // namespace tandem::trainer
