// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "ops/router_config.h"
#include "ops/tokens.h"
#include "ops/workspace.h"

namespace tandem::ops {

// Auxiliary losses of a router. Their gradients are added to those of the logits; they are not part of the
// model's loss.
//
// balance: the mean over sequences of E / (k S^2) * sum_e n_e * sum_t s_te: 1 if the load is even (Switch
// Transformers, arXiv:2101.03961, section 2.2, for k experts). S: tokens of a sequence; s: softmax over all
// experts, or sigmoids divided by their sum (if all of them underflow: a softmax of their logarithms); n_e:
// how many tokens of the sequence have e among the k largest s, without bias and groups. n_e has no gradient.
// If `counts` are given, they are n_e (MeanCounts): a microbatch then counts as if its tokens were
// distributed as those of many microbatches. S is then T, and the mean of the balances of these microbatches
// is the balance of all their tokens. z: the mean over tokens of logsumexp(logits)^2 (ST-MoE,
// arXiv:2202.08906, section 3.2).

// A smaller sum of a token's sigmoids has lost digits and is not used as a divisor.
template <typename T>
constexpr T kLeastSigmoidSum = std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon();

// values: balance and z, without their coefficients. They are summed in double, on the CPU in the order of
// tokens.
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

// counts: [E], n_e over all tokens.
template <typename T>
struct CountLargestArgs {
  static constexpr const char* kName = "CountLargest";
  RouterConfig config;
  const T* logits;
  int64_t tokens;
  double* counts;
};

// counts = seen * k T / sum(seen), [E]: n_e of a microbatch of T tokens that is distributed like everything
// seen. seen: [E], (+)= the sum of by_rank over ranks, added if `continues`; if it is null, that sum alone is
// used. by_rank: [ranks, E], whole numbers, so that any order of addition is exact.
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
