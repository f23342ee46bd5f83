// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/router_config.h"

namespace tandem::ops {

// Decides which experts each token visits, and their weights. There are T tokens and E experts; each token
// chooses k. Everything is computed in the type of the logits, float or double.

// Throws std::invalid_argument if top_k, groups_per_token or best_of_group is out of range, if the groups do
// not divide the experts, or if normalize is set with a top_k of 1. The error names the option.
void CheckRouter(const RouterConfig& config);

// logits: [T, E]. chosen: [T, k], ascending in each row. probabilities: [T, k], of the chosen experts. The k
// largest scores are chosen; of equal scores those with the smallest index. bias: [E] or null; added to the
// scores for the choice only, never to the probabilities; only with sigmoid scores. Softmax scores are
// compared as logits. A row with NaN or infinity chooses the first k experts, with NaN as probabilities. If
// config.deals, DealtExpert chooses, and the probabilities are those of its choice.
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

// Overwrites grad_logits: [T, E]. The choice has no gradient, nor has a probability whose choice was dropped
// (capacity.h). ranked: as Route chose; chosen: the same with -1 for dropped choices, or `ranked` itself.
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

// tokens: [experts], how many choices each expert has, without dropped ones (-1). dropped: how many were
// dropped.
struct CountTokensArgs {
  static constexpr const char* kName = "CountTokens";
  const int64_t* chosen;
  int64_t slots;
  int64_t experts;
  double* tokens;
  double* dropped;
};

// bias += rate * sign(mean of tokens - tokens), for each expert, so that an expert with fewer tokens than the
// mean is chosen more often. tokens: [ranks, experts], rows `stride` apart, the counts of each rank; bias:
// [experts]. applies: a single value; if false, the bias does not change.
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
