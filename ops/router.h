// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/router_config.h"

namespace tandem::ops {

// Which experts see a token, and how much each counts. T tokens, E experts, of which each token has k.
// Everything here is computed in the type of the logits, float or double.

// Throws std::invalid_argument, naming what does not fit: top_k or groups out of range or that do not divide.
void CheckRouter(const RouterConfig& config);

// logits: [T, E]. chosen: [T, k], ascending in each row; probabilities: [T, k], of the chosen.
// The k largest scores are chosen, of equal ones those with the smallest index. bias: [E], added to the
// scores for the choice alone, never in the probabilities; null: none; with sigmoid scores only. Softmax
// scores are compared as logits. A row with NaN or infinity chooses the first k, with probabilities of NaN.
// With config.deals the choice is DealtExpert's, and the probabilities are of what it chose.
template <typename T>
struct RouteArgs {
  static constexpr const char* kName = "Route";
  RouterConfig config;
  const T* logits;
  const T* bias;
  int64_t tokens;
  int64_t* chosen;
  T* probabilities;
};

// Overwrites grad_logits: [T, E]. The choice has no gradient, and neither has a probability whose choice was
// dropped (capacity.h). ranked: as Route chose; chosen: the same with -1 for what was dropped, or `ranked`
// itself.
template <typename T>
struct RouteBackwardArgs {
  static constexpr const char* kName = "RouteBackward";
  RouterConfig config;
  const T* logits;
  const int64_t* ranked;
  const int64_t* chosen;
  const T* grad_probabilities;
  int64_t tokens;
  T* grad_logits;
};

// tokens: [experts], how many of the chosen are each expert; -1 is a choice that was dropped. dropped: how
// many were.
struct CountTokensArgs {
  static constexpr const char* kName = "CountTokens";
  const int64_t* chosen;
  int64_t slots;
  int64_t experts;
  double* tokens;
  double* dropped;
};

// bias += rate * sign(mean of tokens - tokens), expert by expert: one that had fewer tokens than the mean is
// chosen more. tokens: [ranks, experts], rows `stride` apart, what each rank has counted; bias: [experts].
// applies: one; false: the bias stays as it is.
template <typename T>
struct UpdateRouterBiasArgs {
  static constexpr const char* kName = "UpdateRouterBias";
  const double* tokens;
  int64_t ranks;
  int64_t stride;
  int64_t experts;
  const bool* applies;
  double rate;
  T* bias;
};

}  // namespace tandem::ops
