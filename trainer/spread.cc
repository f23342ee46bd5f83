// SPDX-License-Identifier: Apache-2.0
#include "trainer/spread.h"

#include <algorithm>
#include <cmath>

namespace tandem::trainer {

std::optional<Spread> SpreadOf(std::span<const double> values) {
  if (values.size() < Spread::kFewest) {
    return std::nullopt;
  }
  const auto count = static_cast<double>(values.size());
  double mean = 0;
  for (const double value : values) {
    mean += value / count;
  }
  double variance = 0;
  for (const double value : values) {
    const double difference = value - mean;
    variance += difference * difference / count;
  }
  return Spread{.mean = mean, .deviation = std::max(std::sqrt(variance), Spread::kLeastDeviation)};
}

}  // namespace tandem::trainer
