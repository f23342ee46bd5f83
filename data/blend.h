// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::data {

// Converts weights to integers: millionths of their sum, rounded, each at least 1. Each weight is first
// rounded to a multiple of 1e-9, so that the result does not depend on a sum of doubles. Requires 1 to 1000
// weights from 1e-6 to 1e6.
std::vector<int64_t> ScaledWeights(const std::vector<double>& weights);

// Does the same for weights that are integers, without the first rounding. Requires 1 to 1000 numbers from 1
// to 2^50.
std::vector<int64_t> ScaledCounts(const std::vector<int64_t>& counts);

// Chooses the source of each sample of a sequence that mixes several sources, by the quota rule of Balinski
// and Young. The weights are w_i with sum W, and c_i is the number of samples that source i has given so far.
// Sample t = 1, 2, ... comes from the source with the smallest (c_i + 1) / w_i among the sources with c_i W <
// w_i t; at a tie, from the first of them. Then |c_i - t w_i / W| < 1 holds at every t. The computation needs
// only integers. The choices repeat after W samples. Not thread-safe.
class Blend {
 public:
  // Requires weights >= 1 whose sum is at most 2^31.
  explicit Blend(std::vector<int64_t> weights);

  // Chooses the source of the next sample.
  size_t Next();

  // Continues as if `samples` samples had been chosen. Computes at most W choices.
  void Seek(int64_t samples);

  int64_t samples() const { return samples_; }                    // how many were chosen so far
  const std::vector<int64_t>& counts() const { return counts_; }  // how many of them came from each source

 private:
  std::vector<int64_t> weights_;  // divided by their greatest common divisor
  int64_t sum_ = 0;
  int64_t samples_ = 0;
  std::vector<int64_t> counts_;

  // The choices are computed from numbers that restart every W samples, so that a product of two of them fits
  // 64 bits: how many samples, how many of each source, and the earliest t at which each source may be chosen
  // next.
  void Restart();
  int64_t recent_ = 0;
  std::vector<int64_t> recent_counts_;
  std::vector<int64_t> next_;
};

}  // namespace tandem::data
