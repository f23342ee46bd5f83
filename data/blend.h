// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::data {

// Weights as integers: millionths of their sum, rounded, each at least 1. Each weight is first rounded to a
// multiple of 1e-9, so that no sum of doubles decides. Requires 1 to 1000 weights from 1e-6 to 1e6.
std::vector<int64_t> ScaledWeights(const std::vector<double>& weights);

// The same of what is an integer already: requires 1 to 1000 numbers from 1 to 2^50.
std::vector<int64_t> ScaledCounts(const std::vector<int64_t>& counts);

// Which of several sources each of a row of samples comes from: the quota rule of Balinski and Young. With
// weights w_i of sum W, of which c_i samples have come from source i before, sample t = 1, 2, ... comes from
// the source that has the smallest (c_i + 1) / w_i among those with c_i W < w_i t; at a tie, the first. So
// that |c_i - t w_i / W| < 1 at every t, in integers alone. The choices repeat after W samples. Not
// thread-safe.
class Blend {
 public:
  // Requires weights >= 1 whose sum is at most 2^31.
  explicit Blend(std::vector<int64_t> weights);

  // The source of the next sample.
  size_t Next();

  // Goes to where `samples` samples have been chosen: at most W steps from where the choices repeat.
  void Seek(int64_t samples);

  int64_t samples() const { return samples_; }                    // chosen so far
  const std::vector<int64_t>& counts() const { return counts_; }  // of them, by source

 private:
  std::vector<int64_t> weights_;  // without a common divisor
  int64_t sum_ = 0;
  int64_t samples_ = 0;
  std::vector<int64_t> counts_;

  // Since the choices repeated last: samples, those of each source, and the first of them that its next one
  // can be. Products of two of these fit 64 bits.
  void Restart();
  int64_t recent_ = 0;
  std::vector<int64_t> recent_counts_;
  std::vector<int64_t> next_;
};

}  // namespace tandem::data
