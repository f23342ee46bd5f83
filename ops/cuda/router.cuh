// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <climits>
#include <cstdint>

#include "ops/cuda/block.cuh"
#include "ops/cuda/warp.cuh"
#include "ops/router_config.h"

// A warp processes the scores of one token; lane l reads every 32nd score from the l-th on.
namespace tandem::ops::cuda {

constexpr int kRouterWarps = 4;  // of a block, at most

// The token of this warp.
__device__ inline int64_t TokenOfWarp() {
  return static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
}
inline unsigned TokenBlocks(int64_t tokens, int warps = kRouterWarps) {
  return static_cast<unsigned>((tokens + warps - 1) / warps);
}

template <typename T>
__device__ T WarpMax(T value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const T other = __shfl_xor_sync(kEveryLane, value, lanes);
    value = other > value || other != other ? other : value;
  }
  return value;
}

// The softmax of a row: the largest logit, and the sum of the exponentials.
template <typename T>
struct SoftmaxOf {
  __device__ SoftmaxOf(const T* logits, int64_t experts) {
    largest = -static_cast<T>(INFINITY);
    for (int64_t e = LaneOf(); e < experts; e += 32) {
      largest = logits[e] > largest || logits[e] != logits[e] ? logits[e] : largest;
    }
    largest = WarpMax(largest);
    sum = 0;
    for (int64_t e = LaneOf(); e < experts; e += 32) {
      sum += exp(logits[e] - largest);
    }
    sum = WarpSum(sum);
  }
  __device__ T Score(T logit) const { return exp(logit - largest) / sum; }
  __device__ T LogSumExp() const { return largest + log(sum); }

  T largest;
  T sum;
};

// A key and its index, ordered by descending keys and, for equal keys, by ascending indices.
template <typename T>
struct Ranked {
  T key = static_cast<T>(INFINITY);  // before the first
  int64_t index = -1;

  __device__ bool IsBefore(const Ranked& other) const {
    return key > other.key || (key == other.key && index < other.index);
  }
};

// Returns the first entry after `last` in that order among the indices that `allows` accepts; the lanes
// search together. Keys of NaN are skipped. The index is INT_MAX if there is no such entry.
template <typename T, typename KeyOf, typename Allows>
__device__ Ranked<T> NextLargest(int64_t count, const Ranked<T>& last, const KeyOf& key_of,
                                 const Allows& allows) {
  Ranked<T> best{-static_cast<T>(INFINITY), INT_MAX};
  for (int64_t i = LaneOf(); i < count; i += 32) {
    if (!allows(i)) {
      continue;
    }
    const Ranked<T> here{key_of(i), i};
    if (last.IsBefore(here) && here.IsBefore(best)) {
      best = here;
    }
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const Ranked<T> other{__shfl_xor_sync(kEveryLane, best.key, lanes),
                          __shfl_xor_sync(kEveryLane, best.index, lanes)};
    if (other.IsBefore(best)) {
      best = other;
    }
  }
  return best;
}

}  // namespace tandem::ops::cuda
