// SPDX-License-Identifier: Apache-2.0
// The choice of experts and its gradient. A warp has one token.
#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/kernels.h"
#include "ops/cuda/router.cuh"
#include "ops/router.h"
#include "ops/sparse_work.h"

namespace tandem::ops::cuda {
namespace {

// Added to the sum of sigmoids by which probabilities are divided, as on the CPU (router.cc).
constexpr double kSumEpsilon = 1e-20;
constexpr int64_t kBlockBytes = 48 << 10;  // shared memory that a block has by default

// The memory of a warp for its token.
template <typename T>
struct TokenMemory {
  __device__ TokenMemory(const RouterConfig& config, unsigned char* shared) {
    unsigned char* const own = shared + threadIdx.x / 32 * Bytes(config);
    keys = reinterpret_cast<T*>(own);
    scores = keys + config.experts;
    sums = scores + config.top_k;
    largest = reinterpret_cast<int64_t*>(own + NumberBytes(config));
    allowed = largest + config.top_k;
  }
  static __host__ __device__ int64_t NumberBytes(const RouterConfig& config) {
    const int64_t numbers = config.experts + config.top_k + config.groups;
    return (numbers + numbers % 2) * static_cast<int64_t>(sizeof(T));
  }
  static __host__ __device__ int64_t Bytes(const RouterConfig& config) {
    return NumberBytes(config) + (config.top_k + config.groups) * static_cast<int64_t>(sizeof(int64_t));
  }
  // The largest size: all experts are chosen, and each is a group of its own.
  static constexpr int64_t kMostBytes =
      kMostGpuGroups * static_cast<int64_t>(3 * sizeof(T) + 2 * sizeof(int64_t));

  T* keys;           // [E]: compared to choose experts
  T* scores;         // [k]: of the chosen experts, before scaling
  T* sums;           // [groups]
  int64_t* largest;  // [k]: the chosen experts, largest first or as they are dealt
  int64_t* allowed;  // [groups]
};

// Finds the groups whose best scores have the largest sums.
template <typename T>
__device__ void AllowGroups(const RouterConfig& config, const T* logits, const TokenMemory<T>& memory) {
  const int64_t size = config.experts / config.groups;
  const int64_t best = config.best_of_group;
  const bool softmax = config.score == RouterScore::kSoftmax && best > 1;  // otherwise logits suffice
  const SoftmaxOf<T> all(logits, config.experts);
  const auto score = [&](int64_t e) { return softmax ? all.Score(logits[e]) : memory.keys[e]; };
  for (int64_t group = 0; group < config.groups; ++group) {
    Ranked<T> last;
    T sum = 0;
    for (int64_t i = 0; i < best; ++i) {
      last = NextLargest<T>(
          size, last, [&](int64_t e) { return score(group * size + e); }, [](int64_t) { return true; });
      sum += last.key;
    }
    if (LaneOf() == 0) {
      memory.sums[group] = sum;
      memory.allowed[group] = 0;
    }
  }
  __syncwarp();
  Ranked<T> last;
  for (int64_t i = 0; i < config.groups_per_token; ++i) {
    last = NextLargest<T>(
        config.groups, last, [&](int64_t group) { return memory.sums[group]; }, [](int64_t) { return true; });
    if (LaneOf() == 0 && last.index < config.groups) {
      memory.allowed[last.index] = 1;
    }
  }
  __syncwarp();
}

// from: [k], different experts in any order, written by the warp. chosen: [k], ascending.
__device__ void PutAscending(int64_t k, const int64_t* from, int64_t* chosen) {
  __syncwarp();
  for (int64_t j = LaneOf(); j < k; j += 32) {
    int64_t place = 0;
    for (int64_t other = 0; other < k; ++other) {
      place += from[other] < from[j];
    }
    chosen[place] = from[j];
  }
  __syncwarp();
}

// chosen: [k], ascending. Returns false, and chooses nothing, if a logit is NaN or infinite.
template <typename T>
__device__ bool Choose(const RouterConfig& config, const T* logits, const T* bias,
                       const TokenMemory<T>& memory, int64_t* chosen) {
  bool finite = true;
  for (int64_t e = LaneOf(); e < config.experts; e += 32) {
    T key = logits[e];
    finite = finite && isfinite(key);
    if (config.score == RouterScore::kSigmoid) {
      key = SigmoidOf(key) + (bias != nullptr ? bias[e] : T{0});
    }
    memory.keys[e] = key;
    finite = finite && key == key;
  }
  if (!__all_sync(kEveryLane, finite)) {
    return false;
  }
  __syncwarp();
  const bool grouped = config.groups_per_token < config.groups;
  if (grouped) {
    AllowGroups(config, logits, memory);
  }
  const int64_t size = config.experts / config.groups;
  Ranked<T> last;
  for (int64_t j = 0; j < config.top_k; ++j) {
    last = NextLargest<T>(
        config.experts, last, [&](int64_t e) { return memory.keys[e]; },
        [&](int64_t e) { return !grouped || memory.allowed[e / size] != 0; });
    if (LaneOf() == 0) {
      memory.largest[j] = last.index;
    }
  }
  PutAscending(config.top_k, memory.largest, chosen);
  return true;
}

// Writes the scores of the token's chosen experts before scaling to memory.scores. Returns the divisor of a
// normalised score.
template <typename T>
__device__ T ChosenScores(const RouterConfig& config, const T* logits, const int64_t* chosen,
                          const TokenMemory<T>& memory) {
  const int64_t k = config.top_k;
  T sum = 1;
  if (config.score == RouterScore::kSoftmax && config.normalize) {
    // The chosen experts have a softmax of their own, which does not underflow.
    T largest = logits[chosen[0]];
    for (int64_t j = 1; j < k; ++j) {
      largest = fmax(largest, logits[chosen[j]]);
    }
    T all = 0;
    for (int64_t j = 0; j < k; ++j) {
      all += exp(logits[chosen[j]] - largest);
    }
    for (int64_t j = LaneOf(); j < k; j += 32) {
      memory.scores[j] = exp(logits[chosen[j]] - largest) / all;
    }
  } else if (config.score == RouterScore::kSoftmax) {
    const SoftmaxOf<T> all(logits, config.experts);
    for (int64_t j = LaneOf(); j < k; j += 32) {
      memory.scores[j] = all.Score(logits[chosen[j]]);
    }
  } else {
    if (config.normalize) {
      sum = static_cast<T>(kSumEpsilon);
      for (int64_t j = 0; j < k; ++j) {
        sum += SigmoidOf(logits[chosen[j]]);
      }
    }
    for (int64_t j = LaneOf(); j < k; j += 32) {
      memory.scores[j] = SigmoidOf(logits[chosen[j]]) / sum;
    }
  }
  __syncwarp();
  return sum;
}

template <typename T>
__global__ void RouteTokens(RouteArgs<T> args) {
  extern __shared__ __align__(16) unsigned char shared[];
  const RouterConfig& config = args.config;
  const TokenMemory<T> memory(config, shared);
  const int64_t token = TokenOfWarp();
  if (token >= args.tokens) {
    return;
  }
  const T* const logits = args.logits + token * config.experts;
  int64_t* const chosen = args.chosen + token * config.top_k;
  T* const probabilities = args.probabilities + token * config.top_k;
  if (config.deals) {
    for (int64_t j = LaneOf(); j < config.top_k; j += 32) {
      memory.largest[j] = DealtExpert(config, token, j);
    }
    PutAscending(config.top_k, memory.largest, chosen);
  } else if (!Choose(config, logits, args.bias, memory, chosen)) {
    for (int64_t j = LaneOf(); j < config.top_k; j += 32) {
      chosen[j] = j;
      probabilities[j] = static_cast<T>(nan(""));
    }
    return;
  }
  ChosenScores(config, logits, chosen, memory);
  for (int64_t j = LaneOf(); j < config.top_k; j += 32) {
    probabilities[j] = memory.scores[j] * static_cast<T>(config.scale);
  }
}

template <typename T>
__global__ void RouteTokensBackward(RouteBackwardArgs<T> args) {
  extern __shared__ __align__(16) unsigned char shared[];
  const RouterConfig& config = args.config;
  const TokenMemory<T> memory(config, shared);
  const int64_t token = TokenOfWarp();
  if (token >= args.tokens) {
    return;
  }
  const int64_t k = config.top_k;
  const T* const logits = args.logits + token * config.experts;
  const int64_t* const ranked = args.ranked + token * k;
  const int64_t* const chosen = args.chosen + token * k;
  const T* const grad_probabilities = args.grad_probabilities + token * k;
  T* const grad_logits = args.grad_logits + token * config.experts;
  const T sum = ChosenScores(config, logits, ranked, memory);
  const auto grad = [&](int64_t j) {
    return chosen[j] < 0 ? T{0} : grad_probabilities[j] * static_cast<T>(config.scale);
  };
  T dot = 0;
  for (int64_t j = 0; j < k; ++j) {
    dot += memory.scores[j] * grad(j);
  }
  if (config.score == RouterScore::kSoftmax && !config.normalize) {
    const SoftmaxOf<T> all(logits, config.experts);
    for (int64_t e = LaneOf(); e < config.experts; e += 32) {
      T own = 0;
      for (int64_t j = 0; j < k; ++j) {
        own = ranked[j] == e ? grad(j) : own;
      }
      grad_logits[e] = all.Score(logits[e]) * (own - dot);
    }
    return;
  }
  for (int64_t e = LaneOf(); e < config.experts; e += 32) {
    grad_logits[e] = 0;
  }
  __syncwarp();
  for (int64_t j = LaneOf(); j < k; j += 32) {
    if (config.score == RouterScore::kSoftmax) {
      grad_logits[ranked[j]] = memory.scores[j] * (grad(j) - dot);
    } else {
      const T sigmoid = SigmoidOf(logits[ranked[j]]);
      const T grad_sigmoid = config.normalize ? (grad(j) - dot) / sum : grad(j);
      grad_logits[ranked[j]] = grad_sigmoid * sigmoid * (1 - sigmoid);
    }
  }
}

// Called with one block.
__global__ void CountChosen(CountTokensArgs args) {
  const int64_t experts = args.experts;
  __shared__ int counts[kMostGpuGroups + 1];  // the last one counts dropped choices
  for (int64_t e = threadIdx.x; e <= experts; e += blockDim.x) {
    counts[e] = 0;
  }
  __syncthreads();
  for (int64_t slot = threadIdx.x; slot < args.slots; slot += blockDim.x) {
    const int64_t expert = args.chosen[slot];
    atomicAdd(counts + (expert >= 0 && expert < experts ? expert : experts), 1);
  }
  __syncthreads();
  for (int64_t e = threadIdx.x; e < experts; e += blockDim.x) {
    args.tokens[e] = counts[e];
  }
  if (threadIdx.x == 0) {
    *args.dropped = counts[experts];
  }
}

// Called with one block. Adds whole numbers of less than 2^53, whose sums are exact in any order.
template <typename T>
__global__ void MoveBias(UpdateRouterBiasArgs<T> args) {
  if (!*args.applies) {
    return;
  }
  const int64_t experts = args.experts;
  const auto counted = [&](int64_t e) {
    double sum = 0;
    for (int64_t rank = 0; rank < args.ranks; ++rank) {
      sum += args.tokens[rank * args.stride + e];
    }
    return sum;
  };
  double sum = 0;
  for (int64_t e = threadIdx.x; e < experts; e += kThreads) {
    sum += counted(e);
  }
  sum = BlockSum(sum);
  for (int64_t e = threadIdx.x; e < experts; e += kThreads) {
    const double missing = sum - counted(e) * static_cast<double>(experts);
    args.bias[e] += static_cast<T>(missing > 0 ? args.rate : missing < 0 ? -args.rate : 0);
  }
}

// Returns the warps of a block, so that the memory of their tokens fits. One fits for any number of experts
// up to kMostGpuGroups.
template <typename T>
int WarpsOf(const RouterConfig& config) {
  static_assert(TokenMemory<T>::kMostBytes <= kBlockBytes);
  return static_cast<int>(std::clamp<int64_t>(kBlockBytes / TokenMemory<T>::Bytes(config), 1, kRouterWarps));
}

}  // namespace

template <typename T>
int Launch(const RouteArgs<T>& args, Stream stream) {
  if (args.tokens == 0) {
    return cudaSuccess;
  }
  const int warps = WarpsOf<T>(args.config);
  RouteTokens<<<TokenBlocks(args.tokens, warps), warps * 32, warps * TokenMemory<T>::Bytes(args.config),
                stream>>>(args);
  return cudaGetLastError();
}
TANDEM_STATISTICS_KERNEL(RouteArgs)

template <typename T>
int Launch(const RouteBackwardArgs<T>& args, Stream stream) {
  if (args.tokens == 0) {
    return cudaSuccess;
  }
  const int warps = WarpsOf<T>(args.config);
  RouteTokensBackward<<<TokenBlocks(args.tokens, warps), warps * 32,
                        warps * TokenMemory<T>::Bytes(args.config), stream>>>(args);
  return cudaGetLastError();
}
TANDEM_STATISTICS_KERNEL(RouteBackwardArgs)

template <>
int LaunchKernel(const CountTokensArgs& args, Stream stream) {
  CountChosen<<<1, 1024, 0, stream>>>(args);
  return cudaGetLastError();
}

template <typename T>
int Launch(const UpdateRouterBiasArgs<T>& args, Stream stream) {
  MoveBias<<<1, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}
TANDEM_STATISTICS_KERNEL(UpdateRouterBiasArgs)

}  // namespace tandem::ops::cuda
