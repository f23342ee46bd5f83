// SPDX-License-Identifier: Apache-2.0
#include "ops/router_losses.h"

#include <ATen/core/Tensor.h>

#include <numeric>
#include <vector>

#include "ops/router.h"
#include "ops/router_scores.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
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

void CheckSequences(const RouterLossConfig& losses, const at::Tensor& logits) {
  TORCH_CHECK(losses.sequence_length > 0 && logits.size(0) % losses.sequence_length == 0, logits.size(0),
              " tokens are not whole sequences of ", losses.sequence_length);
}

}  // namespace

void RouterLosses(const RouterConfig& config, const RouterLossConfig& losses, const at::Tensor& logits,
                  at::Tensor& values) {
  CheckSequences(losses, logits);
  WithLogits(config, logits, [&]<typename T>(T) {
    CheckElements("values", values, 2);
    const int64_t tokens = logits.size(0);
    const int64_t length = losses.sequence_length;
    Sequence<T> sequence(config, length);
    std::vector<T> softmax(config.experts);
    double balance = 0;
    double z = 0;
    const T* in = ElementsOf<T>(logits);
    for (int64_t first = 0; first < tokens; first += length, in += length * config.experts) {
      sequence.Read(in);
      for (int64_t token = 0; token < length; ++token) {
        for (int64_t e = 0; e < config.experts; ++e) {
          balance += static_cast<double>(sequence.counts()[e]) * sequence.scores(token)[e];
        }
        const double lse = Softmax(in + token * config.experts, config.experts, softmax.data());
        z += lse * lse;
      }
    }
    double* const out = values.mutable_data_ptr<double>();
    out[0] = balance * BalanceScale(config, length, tokens);
    out[1] = z / static_cast<double>(tokens);
  });
}

void RouterLossesBackward(const RouterConfig& config, const RouterLossConfig& losses,
                          const at::Tensor& logits, at::Tensor& grad_logits) {
  if (losses.balance == 0 && losses.z == 0) {
    return;
  }
  CheckSequences(losses, logits);
  WithLogits(config, logits, [&]<typename T>(T) {
    const int64_t experts = config.experts;
    const int64_t tokens = logits.size(0);
    const int64_t length = losses.sequence_length;
    CheckMatrix("grad_logits", grad_logits, tokens, experts);
    const T balance = static_cast<T>(losses.balance * BalanceScale(config, length, tokens));
    const T z = static_cast<T>(2 * losses.z / static_cast<double>(tokens));
    Sequence<T> sequence(config, length);
    std::vector<T> softmax(experts);
    std::vector<T> grad(experts);
    const T* in = ElementsOf<T>(logits);
    T* out = MutableElementsOf<T>(grad_logits);
    for (int64_t first = 0; first < tokens; first += length) {
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
  });
}

}  // namespace tandem::ops
