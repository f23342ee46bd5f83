// SPDX-License-Identifier: Apache-2.0
#include "ops/router_losses.h"

#include <numeric>
#include <vector>

#include "ops/cpu/router_scores.h"
#include "ops/cpu/run.h"

namespace tandem::ops::cpu {
namespace {

// The scores of a sequence's tokens as the balance sees them, and how many tokens chose each expert.
template <typename T>
class Sequence {
 public:
  Sequence(const RouterConfig& config, int64_t length)
      : config_(config), length_(length), scores_(length * config.experts), order_(config.experts) {}

  void Read(const T* logits) {
    counts_.assign(config_.experts, 0);
    for (int64_t token = 0; token < length_; ++token, logits += config_.experts) {
      T* const scores = scores_.data() + token * config_.experts;
      if (config_.score == RouterScore::kSoftmax) {
        Softmax(logits, config_.experts, scores);
      } else {
        T sum = 0;
        for (int64_t e = 0; e < config_.experts; ++e) {
          scores[e] = Sigmoid(logits[e]);
          sum += scores[e];
        }
        for (int64_t e = 0; e < config_.experts; ++e) {
          scores[e] /= sum;
        }
      }
      std::iota(order_.begin(), order_.end(), 0);
      PutLargestFirst(logits, config_.top_k, order_);  // in the order of the scores
      for (int64_t j = 0; j < config_.top_k; ++j) {
        ++counts_[order_[j]];
      }
    }
  }

  const T* scores(int64_t token) const { return scores_.data() + token * config_.experts; }
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  const RouterConfig& config_;
  const int64_t length_;
  std::vector<T> scores_;  // [S, E]
  std::vector<int64_t> order_;
  std::vector<int64_t> counts_;  // [E]
};

// E / (k S^2 B): what sums of counts times scores are multiplied by.
double BalanceScale(const RouterConfig& config, int64_t length, int64_t tokens) {
  return static_cast<double>(config.experts) /
         (static_cast<double>(config.top_k) * static_cast<double>(length) * static_cast<double>(tokens));
}

}  // namespace

template <typename T>
void Run(const RouterLossesArgs<T>& args) {
  const RouterConfig& config = args.config;
  const int64_t length = args.losses.sequence_length;
  Sequence<T> sequence(config, length);
  std::vector<T> softmax(config.experts);
  double balance = 0;
  double z = 0;
  const T* in = args.logits;
  for (int64_t first = 0; first < args.tokens; first += length, in += length * config.experts) {
    sequence.Read(in);
    for (int64_t token = 0; token < length; ++token) {
      for (int64_t e = 0; e < config.experts; ++e) {
        balance += static_cast<double>(sequence.counts()[e]) * sequence.scores(token)[e];
      }
      const double lse = Softmax(in + token * config.experts, config.experts, softmax.data());
      z += lse * lse;
    }
  }
  args.values[0] = balance * BalanceScale(config, length, args.tokens);
  args.values[1] = z / static_cast<double>(args.tokens);
}
TANDEM_CPU_STATISTICS_KERNEL(RouterLossesArgs)

template <typename T>
void Run(const RouterLossesBackwardArgs<T>& args) {
  const RouterConfig& config = args.config;
  if (args.losses.balance == 0 && args.losses.z == 0) {
    return;
  }
  const int64_t experts = config.experts;
  const int64_t length = args.losses.sequence_length;
  const T balance = static_cast<T>(args.losses.balance * BalanceScale(config, length, args.tokens));
  const T z = static_cast<T>(2 * args.losses.z / static_cast<double>(args.tokens));
  Sequence<T> sequence(config, length);
  std::vector<T> softmax(experts);
  std::vector<T> grad(experts);
  const T* in = args.logits;
  T* out = args.grad_logits;
  for (int64_t first = 0; first < args.tokens; first += length) {
    sequence.Read(in);
    for (int64_t e = 0; e < experts; ++e) {
      grad[e] = balance * static_cast<T>(sequence.counts()[e]);
    }
    for (int64_t token = 0; token < length; ++token, in += experts, out += experts) {
      const T* const scores = sequence.scores(token);
      if (config.score == RouterScore::kSoftmax) {
        SoftmaxBackward(scores, grad.data(), experts, /*add=*/true, out);
      } else {
        // With r = sigmoid / sum: d sigmoid = (d r - sum(r d r)) / sum.
        const T dot = std::inner_product(scores, scores + experts, grad.begin(), T{0});
        T sum = 0;
        for (int64_t e = 0; e < experts; ++e) {
          sum += Sigmoid(in[e]);
        }
        for (int64_t e = 0; e < experts; ++e) {
          const T sigmoid = Sigmoid(in[e]);
          out[e] += (grad[e] - dot) / sum * sigmoid * (1 - sigmoid);
        }
      }
      if (z != 0) {
        const T lse = Softmax(in, experts, softmax.data());
        for (int64_t e = 0; e < experts; ++e) {
          out[e] += z * lse * softmax[e];
        }
      }
    }
  }
}
TANDEM_CPU_STATISTICS_KERNEL(RouterLossesBackwardArgs)

}  // namespace tandem::ops::cpu
