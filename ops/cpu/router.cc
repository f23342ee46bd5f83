// SPDX-License-Identifier: Apache-2.0
#include "ops/router.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/array_checks.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/router_scores.h"

namespace tandem::ops::cpu {
namespace {

// Added to the sum of sigmoids by which probabilities are divided, as DeepSeek-V3 does.
constexpr double kSumEpsilon = 1e-20;

// Chooses the experts of one token after the other.
template <typename T>
class Chooser {
 public:
  // bias: may be null.
  Chooser(const RouterConfig& config, const T* bias)
      : config_(config),
        bias_(bias),
        keys_(config.experts),
        scores_(config.experts),
        sums_(config.groups),
        groups_(config.groups) {}

  // chosen: [k], ascending. Returns false, and chooses nothing, if a logit is NaN or infinite.
  bool Choose(const T* logits, int64_t* chosen) {
    for (int64_t e = 0; e < config_.experts; ++e) {
      if (!std::isfinite(logits[e])) {
        return false;
      }
      keys_[e] =
          config_.score == RouterScore::kSigmoid ? Sigmoid(logits[e]) + (bias_ ? bias_[e] : 0) : logits[e];
    }
    FindCandidates(logits);
    PutLargestFirst(keys_.data(), config_.top_k, candidates_);
    std::copy_n(candidates_.begin(), config_.top_k, chosen);
    std::sort(chosen, chosen + config_.top_k);
    return true;
  }

 private:
  // Finds all experts, or those of the best groups.
  void FindCandidates(const T* logits) {
    candidates_.resize(config_.experts);
    std::iota(candidates_.begin(), candidates_.end(), 0);
    if (config_.groups_per_token == config_.groups) {
      return;
    }
    const T* scores = keys_.data();
    if (config_.score == RouterScore::kSoftmax && config_.best_of_group > 1) {  // otherwise logits suffice
      Softmax(logits, config_.experts, scores_.data());
      scores = scores_.data();
    }
    const int64_t size = config_.experts / config_.groups;
    const int64_t best = config_.best_of_group;
    for (int64_t group = 0; group < config_.groups; ++group) {
      sorted_.assign(scores + group * size, scores + (group + 1) * size);
      std::partial_sort(sorted_.begin(), sorted_.begin() + best, sorted_.end(), std::greater<T>());
      sums_[group] = std::accumulate(sorted_.begin(), sorted_.begin() + best, T{0});
    }
    std::iota(groups_.begin(), groups_.end(), 0);
    PutLargestFirst(sums_.data(), config_.groups_per_token, groups_);
    candidates_.clear();
    for (int64_t i = 0; i < config_.groups_per_token; ++i) {
      for (int64_t e = 0; e < size; ++e) {
        candidates_.push_back(groups_[i] * size + e);
      }
    }
  }

  const RouterConfig& config_;
  const T* const bias_;
  std::vector<T> keys_;    // compared to choose experts
  std::vector<T> scores_;  // of a softmax, if groups are compared by sums
  std::vector<T> sums_;    // of the groups
  std::vector<T> sorted_;
  std::vector<int64_t> groups_;
  std::vector<int64_t> candidates_;
};

// Computes the scores of a token's chosen experts before scaling. Returns the divisor of a normalised score.
template <typename T>
T ChosenScores(const RouterConfig& config, const T* logits, const int64_t* chosen, std::vector<T>& all,
               T* scores) {
  if (config.score == RouterScore::kSoftmax) {
    // If scores are normalised, the chosen experts have a softmax of their own, which does not underflow.
    if (config.normalize) {
      for (int64_t j = 0; j < config.top_k; ++j) {
        all[j] = logits[chosen[j]];
      }
      Softmax(all.data(), config.top_k, scores);
      return 1;
    }
    Softmax(logits, config.experts, all.data());
    for (int64_t j = 0; j < config.top_k; ++j) {
      scores[j] = all[chosen[j]];
    }
    return 1;
  }
  T sum = static_cast<T>(kSumEpsilon);
  for (int64_t j = 0; j < config.top_k; ++j) {
    scores[j] = Sigmoid(logits[chosen[j]]);
    sum += scores[j];
  }
  if (!config.normalize) {
    return 1;
  }
  for (int64_t j = 0; j < config.top_k; ++j) {
    scores[j] /= sum;
  }
  return sum;
}

}  // namespace

template <typename T>
void Run(const RouteArgs<T>& args) {
  const RouterConfig& config = args.config;
  const int64_t k = config.top_k;
  Chooser<T> chooser(config, args.bias);
  std::vector<T> all(config.experts);
  for (int64_t token = 0; token < args.tokens; ++token) {
    const T* const logits = args.logits + token * config.experts;
    int64_t* const chosen = args.chosen + token * k;
    T* const out = args.probabilities + token * k;
    if (config.deals) {
      for (int64_t j = 0; j < k; ++j) {
        chosen[j] = DealtExpert(config, token, j);
      }
      std::sort(chosen, chosen + k);
    } else if (!chooser.Choose(logits, chosen)) {
      std::iota(chosen, chosen + k, 0);
      std::fill_n(out, k, std::numeric_limits<T>::quiet_NaN());
      continue;
    }
    ChosenScores(config, logits, chosen, all, out);
    for (int64_t j = 0; j < k; ++j) {
      out[j] *= static_cast<T>(config.scale);
    }
  }
}
TANDEM_CPU_STATISTICS_KERNEL(RouteArgs)

template <typename T>
void Run(const RouteBackwardArgs<T>& args) {
  const RouterConfig& config = args.config;
  const int64_t k = config.top_k;
  std::vector<T> all(config.experts);
  std::vector<T> grad_all(config.experts);
  std::vector<T> scores(k);
  std::vector<T> grad(k);
  for (int64_t token = 0; token < args.tokens; ++token) {
    const T* const in = args.logits + token * config.experts;
    const int64_t* const experts = args.ranked + token * k;
    const int64_t* const kept = args.chosen + token * k;
    const T* const grad_in = args.grad_probabilities + token * k;
    T* const out = args.grad_logits + token * config.experts;
    const T sum = ChosenScores(config, in, experts, all, scores.data());
    for (int64_t j = 0; j < k; ++j) {
      grad[j] = kept[j] < 0 ? 0 : grad_in[j] * static_cast<T>(config.scale);
    }
    const T dot = std::inner_product(scores.begin(), scores.end(), grad.begin(), T{0});
    if (config.score == RouterScore::kSoftmax && !config.normalize) {
      std::fill(grad_all.begin(), grad_all.end(), T{0});
      for (int64_t j = 0; j < k; ++j) {
        grad_all[experts[j]] = grad[j];
      }
      SoftmaxBackward(all.data(), grad_all.data(), config.experts, /*add=*/false, out);
      continue;
    }
    std::fill_n(out, config.experts, T{0});
    for (int64_t j = 0; j < k; ++j) {
      if (config.score == RouterScore::kSoftmax) {
        out[experts[j]] = scores[j] * (grad[j] - dot);
      } else {
        const T sigmoid = Sigmoid(in[experts[j]]);
        const T grad_sigmoid = config.normalize ? (grad[j] - dot) / sum : grad[j];
        out[experts[j]] = grad_sigmoid * sigmoid * (1 - sigmoid);
      }
    }
  }
}
TANDEM_CPU_STATISTICS_KERNEL(RouteBackwardArgs)

template <>
void RunKernel(const CountTokensArgs& args) {
  std::fill_n(args.tokens, args.experts, 0.0);
  int64_t none = 0;
  for (int64_t slot = 0; slot < args.slots; ++slot) {
    const int64_t expert = args.chosen[slot];
    CheckIndex(expert >= -1 && expert < args.experts, "expert ", expert, " of ", args.experts);
    if (expert < 0) {
      ++none;
    } else {
      ++args.tokens[expert];
    }
  }
  *args.dropped = static_cast<double>(none);
}

template <typename T>
void Run(const UpdateRouterBiasArgs<T>& args) {
  if (!*args.applies) {
    return;
  }
  std::vector<double> counted(args.experts);
  for (int64_t rank = 0; rank < args.ranks; ++rank) {
    const double* const tokens = args.tokens + rank * args.stride;
    std::transform(tokens, tokens + args.experts, counted.begin(), counted.begin(), std::plus<>());
  }
  const double sum = std::accumulate(counted.begin(), counted.end(), 0.0);
  for (int64_t e = 0; e < args.experts; ++e) {
    const double missing = sum - counted[e] * static_cast<double>(args.experts);  // exact: whole numbers
    args.bias[e] += static_cast<T>(missing > 0 ? args.rate : missing < 0 ? -args.rate : 0);
  }
}
TANDEM_CPU_STATISTICS_KERNEL(UpdateRouterBiasArgs)

}  // namespace tandem::ops::cpu
