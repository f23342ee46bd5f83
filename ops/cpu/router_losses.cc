// SPDX-License-Identifier: Apache-2.0
#include "ops/router_losses.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "ops/cpu/kernels.h"
#include "ops/cpu/router_scores.h"

namespace tandem::ops::cpu {
namespace {

// Adds one to the count of each expert that a token would choose without bias and groups. order: work
// memory.
template <typename T>
void CountChoices(const RouterConfig& config, const T* logits, std::vector<int64_t>& order, double* counts) {
  std::iota(order.begin(), order.end(), 0);
  PutLargestFirst(logits, config.top_k, order);  // in the order of the scores
  for (int64_t j = 0; j < config.top_k; ++j) {
    ++counts[order[j]];
  }
}

// The scores of a sequence's tokens as the balance uses them, and unless they are given, the counts of
// tokens that chose each expert.
template <typename T>
class Sequence {
 public:
  Sequence(const RouterConfig& config, int64_t length, const double* given)
      : config_(config),
        length_(length),
        given_(given),
        scores_(length * config.experts),
        sums_(length),
        order_(config.experts),
        counts_(config.experts) {}

  void Read(const T* logits) {
    std::fill(counts_.begin(), counts_.end(), 0);
    if (given_ != nullptr) {
      std::copy_n(given_, config_.experts, counts_.begin());
    }
    for (int64_t token = 0; token < length_; ++token, logits += config_.experts) {
      T* const scores = scores_.data() + token * config_.experts;
      if (config_.score == RouterScore::kSoftmax) {
        Softmax(logits, config_.experts, scores);
      } else {
        sums_[token] = SigmoidShares(logits, config_.experts, scores);
      }
      if (given_ == nullptr) {
        CountChoices(config_, logits, order_, counts_.data());
      }
    }
  }

  const T* scores(int64_t token) const { return scores_.data() + token * config_.experts; }
  T sum(int64_t token) const { return sums_[token]; }  // of the sigmoids, as SigmoidShares returns it
  const std::vector<double>& counts() const { return counts_; }

 private:
  const RouterConfig& config_;
  const int64_t length_;
  const double* const given_;
  std::vector<T> scores_;  // [S, E]
  std::vector<T> sums_;    // [S]
  std::vector<int64_t> order_;
  std::vector<double> counts_;  // [E]
};

// E / (k S^2 B), by which sums of counts times scores are multiplied.
double BalanceScale(const RouterConfig& config, int64_t length, int64_t tokens) {
  return static_cast<double>(config.experts) /
         (static_cast<double>(config.top_k) * static_cast<double>(length) * static_cast<double>(tokens));
}

// Exactly 1 if all targets count.
double CountedShare(const Tokens& targets) {
  if (targets.ids == nullptr) {
    return 1;
  }
  int64_t counted = 0;
  for (int64_t row = 0; row < targets.sequences; ++row) {
    const int64_t* const ids = targets.ids + row * targets.stride;
    counted += targets.length - std::count(ids, ids + targets.length, kNotCounted);
  }
  return static_cast<double>(counted) / static_cast<double>(targets.sequences * targets.length);
}

}  // namespace

template <typename T>
void Run(const RouterLossesArgs<T>& args) {
  const RouterConfig& config = args.config;
  const int64_t length = args.losses.sequence_length;
  Sequence<T> sequence(config, length, args.counts);
  std::vector<T> softmax(config.experts);
  double balance = 0;
  double z = 0;
  const T* in = args.logits;
  for (int64_t first = 0; first < args.tokens; first += length, in += length * config.experts) {
    sequence.Read(in);
    for (int64_t token = 0; token < length; ++token) {
      for (int64_t e = 0; e < config.experts; ++e) {
        balance += sequence.counts()[e] * static_cast<double>(sequence.scores(token)[e]);
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
  const T share = static_cast<T>(CountedShare(args.targets));
  const T balance = static_cast<T>(args.losses.balance * BalanceScale(config, length, args.tokens)) * share;
  const T z = static_cast<T>(2 * args.losses.z / static_cast<double>(args.tokens)) * share;
  Sequence<T> sequence(config, length, args.counts);
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
        const T sum = sequence.sum(token);
        for (int64_t e = 0; e < experts; ++e) {
          const T sigmoid = Sigmoid(in[e]);
          const T share = sum > 0 ? (grad[e] - dot) / sum * sigmoid : (grad[e] - dot) * scores[e];
          out[e] += share * (1 - sigmoid);
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

template <typename T>
void Run(const CountLargestArgs<T>& args) {
  std::fill_n(args.counts, args.config.experts, 0);
  std::vector<int64_t> order(args.config.experts);
  for (int64_t token = 0; token < args.tokens; ++token) {
    CountChoices(args.config, args.logits + token * args.config.experts, order, args.counts);
  }
}
TANDEM_CPU_STATISTICS_KERNEL(CountLargestArgs)

template <>
void RunKernel(const MeanCountsArgs& args) {
  double sum = 0;
  for (int64_t e = 0; e < args.experts; ++e) {
    double seen = args.continues ? args.seen[e] : 0;
    for (int64_t rank = 0; rank < args.ranks; ++rank) {
      seen += args.by_rank[rank * args.experts + e];
    }
    if (args.seen != nullptr) {
      args.seen[e] = seen;
    }
    args.counts[e] = seen;
    sum += seen;
  }
  for (int64_t e = 0; e < args.experts; ++e) {
    args.counts[e] = args.counts[e] * static_cast<double>(args.slots) / sum;
  }
}

}  // namespace tandem::ops::cpu
