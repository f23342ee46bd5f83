// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "ops/router_config.h"
#include "ops/tokens.h"
#include "ops/workspace.h"

namespace tandem::ops {

// Losses of a router beside the model's: they have a gradient of their own and are not part of its loss.
//
// balance: the mean over sequences of E / (k S^2) * sum_e n_e * sum_t s_te: 1 where the load is even (Switch
// Transformers, arXiv:2101.03961, section 2.2, for k experts). S: tokens of a sequence; s: softmax over all
// experts, or sigmoids divided by their sum (if all of them underflow: a softmax of their logarithms); n_e:
// how many tokens of the sequence have e among the k largest s, without bias and groups. n_e has no gradient.
// Or the n_e are given, of a microbatch that would send its tokens where the mean of many microbatches does:
// then S is T, and the mean over these microbatches of their balances is the balance of all their tokens.
// z: the mean over tokens of logsumexp(logits)^2 (ST-MoE, arXiv:2202.08906, section 3.2).

// Below this, the sum of a token's sigmoids has lost digits and is not used as a divisor.
template <typename T>
constexpr T kLeastSigmoidSum = std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon();

// values: balance and z, without their coefficients. Added in double, on the CPU in the order of tokens.
template <typename T>
struct RouterLossesArgs {
  static constexpr const char* kName = "RouterLosses";
  RouterConfig config;
  RouterLossConfig losses;
  const T* logits;
  int64_t tokens;
  const double* counts;  // n_e, [E]; null: counted for each sequence
  double* values;
  Workspace work;  // of RouterLossesWorkBytes (sparse_work.h)
};

// Adds the gradients of both losses, times their coefficients and the share of the targets that count, to
// grad_logits: [T, E]. The sum over microbatches, divided by the number of targets that count, is then the
// gradient of their mean.
template <typename T>
struct RouterLossesBackwardArgs {
  static constexpr const char* kName = "RouterLossesBackward";
  RouterConfig config;
  RouterLossConfig losses;
  const T* logits;
  int64_t tokens;
  const double* counts;  // as in RouterLosses
  Tokens targets;        // T tokens; without ids, all count
  T* grad_logits;
  Workspace work;  // of RouterLossesWorkBytes
};

// counts: [E], the n_e of all tokens.
template <typename T>
struct CountLargestArgs {
  static constexpr const char* kName = "CountLargest";
  RouterConfig config;
  const T* logits;
  int64_t tokens;
  double* counts;
};

// counts: [E], the n_e of a microbatch of T tokens that is distributed as everything seen: seen * k T /
// sum(seen). seen: [E], to which the sum of by_rank over ranks is added if it continues, or which is
// overwritten; null: only the sum is used. by_rank: [ranks, E], whole numbers, so that any order of addition
// is exact.
struct MeanCountsArgs {
  static constexpr const char* kName = "MeanCounts";
  const double* by_rank;
  int64_t ranks;
  int64_t experts;
  int64_t slots;  // k T
  bool continues;
  double* seen;
  double* counts;
};

}  // namespace tandem::ops
