// SPDX-License-Identifier: Apache-2.0
#include "data/blend.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "platform/check.h"

namespace tandem::data {
namespace {

using Wide = __int128;

constexpr int64_t kMillionths = 1'000'000;

}  // namespace

std::vector<int64_t> ScaledWeights(const std::vector<double>& weights) {
  constexpr double kUnits = 1e9;
  std::vector<int64_t> units;
  for (const double weight : weights) {
    units.push_back(std::llround(weight * kUnits));
  }
  return ScaledCounts(units);
}

std::vector<int64_t> ScaledCounts(const std::vector<int64_t>& counts) {
  Wide sum = 0;
  for (const int64_t count : counts) {
    sum += count;
  }
  TANDEM_CHECK(sum > 0, "there is a weight");
  std::vector<int64_t> scaled;
  for (const int64_t count : counts) {
    const Wide rounded = (2 * static_cast<Wide>(count) * kMillionths + sum) / (2 * sum);
    scaled.push_back(std::max<int64_t>(1, static_cast<int64_t>(rounded)));
  }
  return scaled;
}

Blend::Blend(std::vector<int64_t> weights) : weights_(std::move(weights)), counts_(weights_.size()) {
  int64_t divisor = 0;
  for (const int64_t weight : weights_) {
    TANDEM_CHECK(weight >= 1, "a weight is positive");
    divisor = std::gcd(divisor, weight);
  }
  TANDEM_CHECK(divisor > 0, "there is a source");
  for (int64_t& weight : weights_) {
    weight /= divisor;
    sum_ += weight;
  }
  TANDEM_CHECK(sum_ <= int64_t{1} << 31, "the weights have been scaled");
  Restart();
}

void Blend::Restart() {
  recent_ = 0;
  recent_counts_.assign(weights_.size(), 0);
  next_.assign(weights_.size(), 1);
}

size_t Blend::Next() {
  if (recent_ == sum_) {
    Restart();
  }
  ++recent_;
  size_t best = weights_.size();
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (next_[i] > recent_) {
      continue;  // the source has its quota
    }
    if (best == weights_.size() ||
        (recent_counts_[i] + 1) * weights_[best] < (recent_counts_[best] + 1) * weights_[i]) {
      best = i;
    }
  }
  TANDEM_CHECK(best < weights_.size(), "a source is below its quota");  // the counts add up to less than t
  ++samples_;
  ++counts_[best];
  ++recent_counts_[best];
  next_[best] = recent_counts_[best] * sum_ / weights_[best] + 1;
  return best;
}

void Blend::Seek(int64_t samples) {
  TANDEM_CHECK(samples >= 0, "a number of samples");
  const int64_t from = samples / sum_ * sum_;  // there, each source has its share exactly
  if (samples < samples_ || samples_ < from) {
    Restart();
    samples_ = from;
    for (size_t i = 0; i < weights_.size(); ++i) {
      counts_[i] = from / sum_ * weights_[i];
    }
  }
  while (samples_ < samples) {
    Next();
  }
}

}  // namespace tandem::data
