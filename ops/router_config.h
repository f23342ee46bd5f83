// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

// Options of routers (router.h, router_losses.h). Torch-free, because model/ includes it.
namespace tandem::ops {

enum class RouterScore : uint8_t { kSoftmax, kSigmoid };

struct RouterConfig {
  int64_t experts = 0;  // E
  int64_t top_k = 0;    // k
  RouterScore score = RouterScore::kSoftmax;
  // Divides the scores of the k chosen experts by their sum. For softmax scores this is the softmax over the
  // chosen. Refused with top_k 1, because the router would have no gradient.
  bool normalize = false;
  // Experts form `groups` equal groups. A token may use only the groups_per_token groups whose best_of_group
  // largest scores have the largest sums.
  int64_t groups = 1;
  int64_t groups_per_token = 1;
  int64_t best_of_group = 2;
  double scale = 1;  // factor of the probabilities
  // Deals experts to the tokens in turn, whatever their scores and groups, for measurements of speed. The
  // probabilities are those of the dealt experts.
  bool deals = false;
};

// The j-th expert of a token if config.deals. A token's experts are different, in no order. Tokens take their
// top_k experts in turn from columns of experts / top_k (the first columns may have one more), so that loads
// differ by at most one token, and the experts of a token are far apart, on as many ranks as possible.
#ifdef __CUDACC__
__host__ __device__
#endif
    inline int64_t
    DealtExpert(const RouterConfig& config, int64_t token, int64_t j) {
  const int64_t place = (token * config.top_k + j) % config.experts;
  const int64_t column = place % config.top_k;
  const int64_t longer = config.experts % config.top_k;
  return column * (config.experts / config.top_k) + (column < longer ? column : longer) +
         place / config.top_k;
}

// Which choices stay if more tokens choose an expert than it has room for.
enum class DropPolicy : uint8_t {
  kProbability,  // those with the largest probabilities; if these are equal (kEqualProbabilities), the first
  kPosition,     // the first tokens
};

// Two probabilities count as equal at the limit of the capacity if their relative difference is at most this.
// Tokens that are the same to a model, such as a letter at the beginning of a sequence and its repetition,
// differ only by rounding in another order of computation. If the larger one stayed, the choice would change
// with the last bits of the weights, and the loss with it.
template <typename T>
constexpr T kEqualProbabilities = sizeof(T) == 8 ? static_cast<T>(0x1p-40) : static_cast<T>(0x1p-16);

struct RouterCapacity {
  double factor = 0;  // relative to an expert's tokens under an even load; 0: room for all
  DropPolicy policy = DropPolicy::kProbability;
  // Each expert computes as many rows as it has room for, whatever it receives; the other rows are zeros,
  // which change no result. The cost of a step then does not depend on the router. Needs a factor.
  bool pads = false;
};

// How many of `tokens` tokens an expert has room for: ceil(tokens k / E * factor), at most `tokens`.
inline int64_t CapacityOf(const RouterConfig& router, const RouterCapacity& capacity, int64_t tokens) {
  if (capacity.factor == 0) {
    return tokens;
  }
  const double even = static_cast<double>(tokens * router.top_k) / static_cast<double>(router.experts);
  // Removes rounding errors of a product that should be a whole number.
  return std::min(tokens, static_cast<int64_t>(std::ceil(even * capacity.factor * (1 - 1e-12))));
}

struct RouterLossConfig {
  int64_t sequence_length = 0;  // S in the balance loss; T: over the whole microbatch
  double balance = 0;           // coefficient; 0: no gradient
  double z = 0;
};

}  // namespace tandem::ops
