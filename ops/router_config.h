// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

// Options of routers (router.h, router_losses.h). Torch-free, so that model/ can say it.
namespace tandem::ops {

enum class RouterScore : uint8_t { kSoftmax, kSigmoid };

struct RouterConfig {
  int64_t experts = 0;  // E
  int64_t top_k = 0;    // k
  RouterScore score = RouterScore::kSoftmax;
  // The scores of the k chosen are divided by their sum: of softmax scores that is the softmax over the
  // chosen. Refused with top_k 1: the router would have no gradient.
  bool normalize = false;
  // Experts are split in `groups` equal ones, of which a token may use the groups_per_token whose
  // best_of_group largest scores have the largest sums.
  int64_t groups = 1;
  int64_t groups_per_token = 1;
  int64_t best_of_group = 2;
  double scale = 1;  // of the probabilities
  // Experts are dealt to the tokens in turn, whatever their scores and groups are: for measurements of speed.
  // The probabilities are those of the dealt.
  bool deals = false;
};

// Where config.deals: the j-th of a token's experts, which are different ones, in no order. Tokens take their
// top_k in turn from columns of experts / top_k (the first columns may have one more), so that no two experts
// differ by more than one token, and the experts of a token lie apart: on as many ranks as there can be.
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

// Which of the tokens that chose an expert it has room for, where they are too many.
enum class DropPolicy : uint8_t {
  kProbability,  // those with the largest probabilities; of equal ones (kEqualProbabilities) the first
  kPosition,     // the first
};

// Two probabilities count as equal where the capacity ends between them and they are this near, relatively.
// Tokens that are the same to a model, as a letter at the beginning of a sequence and its repetition are,
// differ by the rounding of what was computed in another order. Were the larger to stay, which one does would
// change with the last bits of the weights, and the loss with it.
template <typename T>
constexpr T kEqualProbabilities = sizeof(T) == 8 ? static_cast<T>(0x1p-40) : static_cast<T>(0x1p-16);

struct RouterCapacity {
  double factor = 0;  // of the tokens of an expert where the load is even; 0: room for all
  DropPolicy policy = DropPolicy::kProbability;
  // Each expert computes as many rows as it has room for, whatever it has: the rest are zeros, which change
  // no number. What a step costs then does not depend on the router. Needs a factor.
  bool pads = false;
};

// The tokens of `tokens` that an expert has room for: ceil(tokens k / E * factor), but never more than there
// are.
inline int64_t CapacityOf(const RouterConfig& router, const RouterCapacity& capacity, int64_t tokens) {
  if (capacity.factor == 0) {
    return tokens;
  }
  const double even = static_cast<double>(tokens * router.top_k) / static_cast<double>(router.experts);
  // A product that is a whole number but for its rounding is that number.
  return std::min(tokens, static_cast<int64_t>(std::ceil(even * capacity.factor * (1 - 1e-12))));
}

struct RouterLossConfig {
  int64_t sequence_length = 0;  // S of the balance; T: over the whole microbatch
  double balance = 0;           // coefficients; 0: no gradient
  double z = 0;
};

}  // namespace tandem::ops
