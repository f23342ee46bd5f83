// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/loss_history.h"

#include <algorithm>
#include <cmath>

namespace tandem::cli {

void LossHistory::Add(double loss) {
  pending_sum_ += loss;
  if (++pending_count_ < per_point_) {
    return;
  }
  points_.push_back(pending_sum_ / pending_count_);
  pending_sum_ = 0;
  pending_count_ = 0;
  if (points_.size() == kCapacity) {
    for (size_t i = 0; i < kCapacity / 2; ++i) {
      points_[i] = (points_[2 * i] + points_[2 * i + 1]) / 2;
    }
    points_.resize(kCapacity / 2);
    per_point_ *= 2;
  }
}

std::string LossHistory::Sparkline(int width, bool unicode) const {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr const char* kAscii[] = {"_", ".", ",", "-", "=", "+", "*", "#"};
  std::vector<double> points = points_;
  if (pending_count_ > 0) {
    points.push_back(pending_sum_ / pending_count_);
  }
  if (points.empty() || width <= 0) {
    return "";
  }
  const size_t columns = std::min(points.size(), static_cast<size_t>(width));
  std::vector<double> heights;
  double low = INFINITY;
  double high = -INFINITY;
  for (size_t c = 0; c < columns; ++c) {
    const size_t begin = c * points.size() / columns;
    const size_t end = std::max(begin + 1, (c + 1) * points.size() / columns);
    double sum = 0;
    for (size_t i = begin; i < end; ++i) {
      sum += points[i];
    }
    heights.push_back(sum / static_cast<double>(end - begin));
    if (std::isfinite(heights.back())) {
      low = std::min(low, heights.back());
      high = std::max(high, heights.back());
    }
  }
  std::string out;
  for (const double height : heights) {
    if (!std::isfinite(height)) {
      out += "!";
      continue;
    }
    const double share = high > low ? (height - low) / (high - low) : 0.5;
    const int level = std::clamp(static_cast<int>(share * 8), 0, 7);
    out += unicode ? kBlocks[level] : kAscii[level];
  }
  return out;
}

}  // namespace tandem::cli
