// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tandem::cli {

// The losses of a job in bounded memory: when full, neighbours are averaged, so the whole course stays
// visible.
class LossHistory {
 public:
  void Add(double loss);
  bool empty() const { return points_.empty() && pending_count_ == 0; }

  // The course as `width` columns of eight heights; shorter while there are fewer losses. Losses that are not
  // finite show as '!'.
  std::string Sparkline(int width, bool unicode) const;

 private:
  static constexpr size_t kCapacity = 512;

  std::vector<double> points_;  // each the mean of per_point_ losses
  int per_point_ = 1;
  double pending_sum_ = 0;
  int pending_count_ = 0;
};

}  // namespace tandem::cli
