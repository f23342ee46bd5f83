// SPDX-License-Identifier: Apache-2.0
#include "ops/router.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/router_scores.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

// Added to the sum of sigmoids that probabilities are divided by, as DeepSeek-V3 does.
constexpr double kSumEpsilon = 1e-20;

// Chooses the experts of one token after the other.
template <typename T>
class Chooser {
 public:
  // bias: null: none.
  Chooser(const RouterConfig& config, const T* bias)
      : config_(config),
        bias_(bias),
        keys_(config.experts),
        scores_(config.experts),
        sums_(config.groups),
        groups_(config.groups) {}

  // chosen: [k], ascending. False where a logit is NaN or infinite: nothing was chosen.
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
  // All experts, or those of the best groups.
  void FindCandidates(const T* logits) {
    candidates_.resize(config_.experts);
    std::iota(candidates_.begin(), candidates_.end(), 0);
    if (config_.groups_per_token == config_.groups) {
      return;
    }
    const T* scores = keys_.data();
    if (config_.score == RouterScore::kSoftmax) {
      Softmax(logits, config_.experts, scores_.data());
      scores = scores_.data();
    }
    const int64_t size = config_.experts / config_.groups;
    const int64_t best = config_.top_k / config_.groups_per_token;
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
  std::vector<T> keys_;    // what is compared
  std::vector<T> scores_;  // of a softmax whose groups are compared
  std::vector<T> sums_;    // of the groups
  std::vector<T> sorted_;
  std::vector<int64_t> groups_;
  std::vector<int64_t> candidates_;
};

// The scores of a token's chosen experts before scaling, and what a normalised score was divided by.
template <typename T>
T ChosenScores(const RouterConfig& config, const T* logits, const int64_t* chosen, std::vector<T>& all,
               T* scores) {
  if (config.score == RouterScore::kSoftmax) {
    // Normalised, the chosen are a softmax of their own, which does not underflow.
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

void CheckRouter(const RouterConfig& config) {
  TORCH_CHECK(config.top_k >= 1 && config.top_k <= config.experts, "a token has 1 to ", config.experts,
              " experts, not ", config.top_k);
  TORCH_CHECK(config.top_k > 1 || !config.normalize,
              "the normalised score of one expert is 1 whatever the router says, so that it never learns");
  TORCH_CHECK(config.groups >= 1 && config.experts % config.groups == 0, config.experts,
              " experts are not split evenly in ", config.groups, " groups");
  TORCH_CHECK(config.groups_per_token >= 1 && config.groups_per_token <= config.groups, "a token uses 1 to ",
              config.groups, " groups, not ", config.groups_per_token);
  if (config.groups_per_token < config.groups) {
    const int64_t best = config.top_k / config.groups_per_token;
    TORCH_CHECK(config.top_k % config.groups_per_token == 0 && best <= config.experts / config.groups,
                config.top_k, " experts are not split evenly over ", config.groups_per_token, " groups of ",
                config.experts / config.groups);
  }
}

void CheckLogits(const RouterConfig& config, const at::Tensor& logits) {
  CheckRouter(config);
  TORCH_CHECK(logits.scalar_type() == at::kFloat || logits.scalar_type() == at::kDouble,
              "routers compute in float32 or float64, not ", logits.scalar_type());
  CheckMatrix("logits", logits, logits.size(0), config.experts);
}

void Route(const RouterConfig& config, const at::Tensor& logits, const at::Tensor& bias, at::Tensor& chosen,
           at::Tensor& probabilities) {
  WithLogits(config, logits, [&]<typename T>(T) {
    const int64_t tokens = logits.size(0);
    const int64_t k = config.top_k;
    CheckMatrix("chosen", chosen, tokens, k);
    CheckMatrix("probabilities", probabilities, tokens, k);
    if (bias.defined()) {
      CheckElements("bias", bias, config.experts);
      TORCH_CHECK(config.score == RouterScore::kSigmoid, "a bias of experts needs sigmoid scores");
    }
    Chooser<T> chooser(config, bias.defined() ? ElementsOf<T>(bias) : nullptr);
    std::vector<T> all(config.experts);
    const T* in = ElementsOf<T>(logits);
    int64_t* experts = chosen.mutable_data_ptr<int64_t>();
    T* out = MutableElementsOf<T>(probabilities);
    for (int64_t token = 0; token < tokens; ++token, in += config.experts, experts += k, out += k) {
      if (!chooser.Choose(in, experts)) {
        std::iota(experts, experts + k, 0);
        std::fill_n(out, k, std::numeric_limits<T>::quiet_NaN());
        continue;
      }
      ChosenScores(config, in, experts, all, out);
      for (int64_t j = 0; j < k; ++j) {
        out[j] *= static_cast<T>(config.scale);
      }
    }
  });
}

void CountTokens(const at::Tensor& chosen, at::Tensor& tokens, at::Tensor& dropped) {
  const int64_t experts = tokens.numel();
  CheckElements("tokens", tokens, experts);
  CheckElements("dropped", dropped, 1);
  CheckMatrix("chosen", chosen, chosen.size(0), chosen.size(1));
  const int64_t* in = chosen.const_data_ptr<int64_t>();
  double* const out = tokens.mutable_data_ptr<double>();
  std::fill_n(out, experts, 0.0);
  int64_t none = 0;
  for (int64_t slot = 0; slot < chosen.numel(); ++slot) {
    TORCH_CHECK_INDEX(in[slot] >= -1 && in[slot] < experts, "expert ", in[slot], " of ", experts);
    if (in[slot] < 0) {
      ++none;
    } else {
      ++out[in[slot]];
    }
  }
  dropped.mutable_data_ptr<double>()[0] = static_cast<double>(none);
}

void UpdateRouterBias(const at::Tensor& tokens, const at::Tensor& applies, double rate, at::Tensor& bias) {
  const int64_t experts = bias.numel();
  CheckElements("bias", bias, experts);
  CheckElements("applies", applies, 1);
  TORCH_CHECK(tokens.dim() == 2 && tokens.size(1) == experts && tokens.stride(1) == 1, "tokens must have ",
              experts, " adjacent columns, not ", tokens.sizes());
  if (!applies.const_data_ptr<bool>()[0]) {
    return;
  }
  std::vector<double> counted(experts);
  const double* rank = tokens.const_data_ptr<double>();
  for (int64_t r = 0; r < tokens.size(0); ++r, rank += tokens.stride(0)) {
    std::transform(rank, rank + experts, counted.begin(), counted.begin(), std::plus<>());
  }
  const double sum = std::accumulate(counted.begin(), counted.end(), 0.0);
  WithElementType(bias, [&]<typename T>(T) {
    if constexpr (std::is_floating_point_v<T>) {
      T* const out = MutableElementsOf<T>(bias);
      for (int64_t e = 0; e < experts; ++e) {
        const double missing = sum - counted[e] * static_cast<double>(experts);  // whole numbers: exact
        out[e] += static_cast<T>(missing > 0 ? rate : missing < 0 ? -rate : 0);
      }
    } else {
      TORCH_CHECK(false, "a bias is of float32 or float64");
    }
  });
}

void RouteBackward(const RouterConfig& config, const at::Tensor& logits, const at::Tensor& ranked,
                   const at::Tensor& chosen, const at::Tensor& grad_probabilities, at::Tensor& grad_logits) {
  WithLogits(config, logits, [&]<typename T>(T) {
    const int64_t tokens = logits.size(0);
    const int64_t k = config.top_k;
    CheckMatrix("ranked", ranked, tokens, k);
    CheckMatrix("chosen", chosen, tokens, k);
    CheckMatrix("grad_probabilities", grad_probabilities, tokens, k);
    CheckMatrix("grad_logits", grad_logits, tokens, config.experts);
    std::vector<T> all(config.experts);
    std::vector<T> grad_all(config.experts);
    std::vector<T> scores(k);
    std::vector<T> grad(k);
    const T* in = ElementsOf<T>(logits);
    const int64_t* experts = ranked.const_data_ptr<int64_t>();
    const int64_t* kept = chosen.const_data_ptr<int64_t>();
    const T* grad_in = ElementsOf<T>(grad_probabilities);
    T* out = MutableElementsOf<T>(grad_logits);
    for (int64_t token = 0; token < tokens; ++token) {
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
      } else {
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
      in += config.experts;
      experts += k;
      kept += k;
      grad_in += k;
      out += config.experts;
    }
  });
}

}  // namespace tandem::ops
