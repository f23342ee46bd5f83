// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "ops/router_losses.h"

// The scores of one token, for a router's kernels. T is float or double.
namespace tandem::ops::cpu {

template <typename T>
T Sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

template <typename T>
T LogSigmoid(T x) {
  return std::min<T>(x, 0) - std::log1p(std::exp(-std::abs(x)));
}

// Writes the softmax of all logits to `scores`, which may be `logits` itself. Returns the log-sum-exp.
template <typename T>
T Softmax(const T* logits, int64_t experts, T* scores) {
  const T largest = *std::max_element(logits, logits + experts);
  T sum = 0;
  for (int64_t e = 0; e < experts; ++e) {
    scores[e] = std::exp(logits[e] - largest);
    sum += scores[e];
  }
  for (int64_t e = 0; e < experts; ++e) {
    scores[e] /= sum;
  }
  return largest + std::log(sum);
}

// Writes the sigmoids divided by their sum to `shares`, and returns the sum. If the sum is too small to
// divide by, because the sigmoids of all logits underflow, the shares are a softmax of the sigmoids'
// logarithms, and 0 is returned.
template <typename T>
T SigmoidShares(const T* logits, int64_t experts, T* shares) {
  T sum = 0;
  for (int64_t e = 0; e < experts; ++e) {
    shares[e] = Sigmoid(logits[e]);
    sum += shares[e];
  }
  if (sum < kLeastSigmoidSum<T>) {
    std::transform(logits, logits + experts, shares, LogSigmoid<T>);
    Softmax(shares, experts, shares);
    return 0;
  }
  for (int64_t e = 0; e < experts; ++e) {
    shares[e] /= sum;
  }
  return sum;
}

// grad_logits (+)= the gradient of Softmax.
template <typename T>
void SoftmaxBackward(const T* scores, const T* grad_scores, int64_t experts, bool add, T* grad_logits) {
  const T dot = std::inner_product(scores, scores + experts, grad_scores, T{0});
  for (int64_t e = 0; e < experts; ++e) {
    grad_logits[e] = (add ? grad_logits[e] : 0) + scores[e] * (grad_scores[e] - dot);
  }
}

// Puts the indices of the k largest keys into candidates[0, k); of equal keys, those with the smallest index.
template <typename T>
void PutLargestFirst(const T* keys, int64_t k, std::vector<int64_t>& candidates) {
  std::partial_sort(candidates.begin(), candidates.begin() + k, candidates.end(),
                    [&](int64_t a, int64_t b) { return keys[a] > keys[b] || (keys[a] == keys[b] && a < b); });
}

}  // namespace tandem::ops::cpu
