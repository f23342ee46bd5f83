// SPDX-License-Identifier: Apache-2.0
// The router's own losses. A warp has one token.
#include <cuda_runtime.h>

#include "ops/cuda/kernels.h"
#include "ops/cuda/router.cuh"
#include "ops/router_losses.h"

namespace tandem::ops::cuda {
namespace {

template <typename T>
__device__ T LogSigmoidOf(T x) {
  return (x < 0 ? x : 0) - log1p(exp(-(x < 0 ? -x : x)));
}

// The scores of a token as the balance uses them: a softmax, or sigmoids divided by their sum. If all
// sigmoids underflow, so that the sum is too small for a division, a softmax of the sigmoids' logarithms.
template <typename T>
struct BalanceScores {
  __device__ BalanceScores(const RouterConfig& config, const T* logits)
      : logits(logits), sigmoids(config.score == RouterScore::kSigmoid), softmax(logits, config.experts) {
    T own = 0;
    for (int64_t e = LaneOf(); sigmoids && e < config.experts; e += 32) {
      own += SigmoidOf(logits[e]);
    }
    sum = WarpSum(own);
    underflows = sigmoids && sum < kLeastSigmoidSum<T>;
    if (underflows) {
      largest = -static_cast<T>(INFINITY);
      for (int64_t e = LaneOf(); e < config.experts; e += 32) {
        const T log = LogSigmoidOf(logits[e]);
        largest = log > largest ? log : largest;
      }
      largest = WarpMax(largest);
      own = 0;
      for (int64_t e = LaneOf(); e < config.experts; e += 32) {
        own += exp(LogSigmoidOf(logits[e]) - largest);
      }
      sum = WarpSum(own);
    }
  }
  __device__ T operator()(int64_t e) const {
    return !sigmoids    ? softmax.Score(logits[e])
           : underflows ? exp(LogSigmoidOf(logits[e]) - largest) / sum
                        : SigmoidOf(logits[e]) / sum;
  }

  const T* logits;
  bool sigmoids;
  SoftmaxOf<T> softmax;
  bool underflows;  // whether the sigmoids underflow
  T largest;        // the largest logarithm, if they do
  T sum;            // of the sigmoids, or of their quotients by the largest
};

// counts: [sequences, E], how many tokens have the expert among their largest scores.
template <template <typename> typename Args, typename T, typename Count>
__global__ void CountLargest(Args<T> args, int64_t length, Count* counts) {
  const RouterConfig& config = args.config;
  const int64_t token = TokenOfWarp();
  if (token >= args.tokens) {
    return;
  }
  const T* const logits = args.logits + token * config.experts;
  counts += token / length * config.experts;
  Ranked<T> last;
  for (int64_t j = 0; j < config.top_k; ++j) {
    last = NextLargest<T>(
        config.experts, last, [&](int64_t e) { return logits[e]; }, [](int64_t) { return true; });
    if (LaneOf() == 0 && last.index < config.experts) {
      atomicAdd(counts + last.index, Count{1});
    }
  }
}

// terms: [tokens, 2], a token's part of each sum.
template <typename T, typename Count>
__global__ void LossTerms(RouterLossesArgs<T> args, const Count* counts, double* terms) {
  const RouterConfig& config = args.config;
  const int64_t token = TokenOfWarp();
  if (token >= args.tokens) {
    return;
  }
  const T* const logits = args.logits + token * config.experts;
  counts += token / args.losses.sequence_length * config.experts;
  const BalanceScores<T> scores(config, logits);
  double balance = 0;
  for (int64_t e = LaneOf(); e < config.experts; e += 32) {
    balance += static_cast<double>(counts[e]) * static_cast<double>(scores(e));
  }
  balance = WarpSum(balance);
  const double lse = scores.softmax.LogSumExp();
  if (LaneOf() == 0) {
    terms[2 * token] = balance;
    terms[2 * token + 1] = lse * lse;
  }
}

// Called with one block.
__global__ void SumTerms(const double* terms, int64_t tokens, double balance_scale, double* values) {
  double balance = 0;
  double z = 0;
  for (int64_t token = threadIdx.x; token < tokens; token += kThreads) {
    balance += terms[2 * token];
    z += terms[2 * token + 1];
  }
  balance = BlockSum(balance);
  z = BlockSum(z);
  if (threadIdx.x == 0) {
    values[0] = balance * balance_scale;
    values[1] = z / static_cast<double>(tokens);
  }
}

// Called with one block. Exactly 1 if all targets count.
__global__ void ShareOfTargets(Tokens targets, double* share) {
  const int64_t tokens = targets.sequences * targets.length;
  double counted = 0;
  for (int64_t token = threadIdx.x; token < tokens; token += kThreads) {
    counted +=
        targets.ids[token / targets.length * targets.stride + token % targets.length] != kNotCounted ? 1 : 0;
  }
  counted = BlockSum(counted);
  if (threadIdx.x == 0) {
    *share = counted / static_cast<double>(tokens);
  }
}

// balance, z: factors of the gradients of the scores and of the log-sum-exp, times `share`; null: 1.
template <typename T, typename Count>
__global__ void AddLossGradients(RouterLossesBackwardArgs<T> args, const Count* counts, const double* share,
                                 T balance, T z) {
  if (share != nullptr) {
    balance *= static_cast<T>(*share);
    z *= static_cast<T>(*share);
  }
  const RouterConfig& config = args.config;
  const int64_t token = TokenOfWarp();
  if (token >= args.tokens) {
    return;
  }
  const T* const logits = args.logits + token * config.experts;
  T* const grad_logits = args.grad_logits + token * config.experts;
  counts += token / args.losses.sequence_length * config.experts;
  const BalanceScores<T> scores(config, logits);
  const T lse = scores.softmax.LogSumExp();
  const auto grad = [&](int64_t e) { return balance * static_cast<T>(counts[e]); };
  T dot = 0;
  for (int64_t e = LaneOf(); e < config.experts; e += 32) {
    dot += scores(e) * grad(e);
  }
  dot = WarpSum(dot);
  for (int64_t e = LaneOf(); e < config.experts; e += 32) {
    T sum = grad_logits[e];
    if (scores.sigmoids) {
      // With r = sigmoid / sum: d sigmoid = (d r - sum(r d r)) / sum.
      const T sigmoid = SigmoidOf(logits[e]);
      sum += (scores.underflows ? (grad(e) - dot) * scores(e) : (grad(e) - dot) / scores.sum * sigmoid) *
             (1 - sigmoid);
    } else {
      sum += scores(e) * (grad(e) - dot);
    }
    if (z != 0) {
      sum += z * lse * scores.softmax.Score(logits[e]);
    }
    grad_logits[e] = sum;
  }
}

// E / (k S^2 B), by which sums of counts times scores are multiplied.
double BalanceScale(const RouterConfig& config, int64_t length, int64_t tokens) {
  return static_cast<double>(config.experts) /
         (static_cast<double>(config.top_k) * static_cast<double>(length) * static_cast<double>(tokens));
}

// Called with one block. Adds whole numbers of less than 2^53, whose sums are exact in any order.
__global__ void MeanOfCounts(MeanCountsArgs args) {
  double sum = 0;
  for (int64_t e = threadIdx.x; e < args.experts; e += kThreads) {
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
  sum = BlockSum(sum);
  for (int64_t e = threadIdx.x; e < args.experts; e += kThreads) {
    args.counts[e] = args.counts[e] * static_cast<double>(args.slots) / sum;
  }
}

// Calls use(counts) with the given counts or, if there are none, with those of each sequence. These are
// counted in the work memory, after two numbers of each token. Returns the runtime's error.
template <typename Args, typename Use>
int WithCounts(const Args& args, Stream stream, const Use& use) {
  if (args.counts != nullptr) {
    use(args.counts);
    return cudaGetLastError();
  }
  int* const counts = reinterpret_cast<int*>(static_cast<double*>(args.work.begin) + 2 * args.tokens);
  const int64_t length = args.losses.sequence_length;
  const int64_t elements = args.tokens / length * args.config.experts;
  cudaMemsetAsync(counts, 0, static_cast<size_t>(elements) * sizeof(int), stream);
  if (args.tokens > 0) {
    CountLargest<<<TokenBlocks(args.tokens), kRouterWarps * 32, 0, stream>>>(args, length, counts);
  }
  use(counts);
  return cudaGetLastError();
}

}  // namespace

template <typename T>
int Launch(const RouterLossesArgs<T>& args, Stream stream) {
  const int64_t length = args.losses.sequence_length;
  double* const terms = static_cast<double*>(args.work.begin);
  return WithCounts(args, stream, [&](const auto* counts) {
    if (args.tokens > 0) {
      LossTerms<<<TokenBlocks(args.tokens), kRouterWarps * 32, 0, stream>>>(args, counts, terms);
    }
    SumTerms<<<1, kThreads, 0, stream>>>(terms, args.tokens, BalanceScale(args.config, length, args.tokens),
                                         args.values);
  });
}
TANDEM_STATISTICS_KERNEL(RouterLossesArgs)

template <typename T>
int Launch(const RouterLossesBackwardArgs<T>& args, Stream stream) {
  const RouterLossConfig& losses = args.losses;
  if (args.tokens == 0 || (losses.balance == 0 && losses.z == 0)) {
    return cudaSuccess;
  }
  const T balance =
      static_cast<T>(losses.balance * BalanceScale(args.config, losses.sequence_length, args.tokens));
  const T z = static_cast<T>(2 * losses.z / static_cast<double>(args.tokens));
  double* const share = args.targets.ids != nullptr ? static_cast<double*>(args.work.begin) : nullptr;
  if (share != nullptr) {
    ShareOfTargets<<<1, kThreads, 0, stream>>>(args.targets, share);
  }
  return WithCounts(args, stream, [&](const auto* counts) {
    AddLossGradients<<<TokenBlocks(args.tokens), kRouterWarps * 32, 0, stream>>>(args, counts, share, balance,
                                                                                 z);
  });
}
TANDEM_STATISTICS_KERNEL(RouterLossesBackwardArgs)

template <typename T>
int Launch(const CountLargestArgs<T>& args, Stream stream) {
  const size_t bytes = static_cast<size_t>(args.config.experts) * sizeof(double);
  const int error = cudaMemsetAsync(args.counts, 0, bytes, stream);
  if (error != cudaSuccess || args.tokens == 0) {
    return error;
  }
  CountLargest<<<TokenBlocks(args.tokens), kRouterWarps * 32, 0, stream>>>(args, /*length=*/args.tokens,
                                                                           args.counts);
  return cudaGetLastError();
}
TANDEM_STATISTICS_KERNEL(CountLargestArgs)

template <>
int LaunchKernel(const MeanCountsArgs& args, Stream stream) {
  MeanOfCounts<<<1, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace tandem::ops::cuda
