// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/elements.cuh"
#include "ops/cuda/warp.cuh"

namespace tandem::ops::cuda {

// What kernels of rows share. A row has a block of kThreads threads; sums are added as trees of one shape.
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// Combines the values of all threads of a block of kBlock; each thread gets the result. `combine` must be
// commutative. The order depends only on kBlock.
template <int kBlock = kThreads, typename T, typename Combine>
__device__ T BlockReduce(T value, Combine combine) {
  __shared__ T shared[kBlock / 32];
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value = combine(value, __shfl_xor_sync(kEveryLane, value, lanes));
  }
  __syncthreads();  // waits for the readers of the previous reduction
  if (threadIdx.x % 32 == 0) {
    shared[threadIdx.x / 32] = value;
  }
  __syncthreads();
  value = shared[0];
#pragma unroll
  for (int warp = 1; warp < kBlock / 32; ++warp) {
    value = combine(value, shared[warp]);
  }
  return value;
}

template <int kBlock = kThreads, typename T>
__device__ T BlockSum(T value) {
  return BlockReduce<kBlock>(value, [](T a, T b) { return a + b; });
}

template <int kBlock = kThreads, typename T>
__device__ T BlockMax(T value) {
  return BlockReduce<kBlock>(value, [](T a, T b) { return a > b || a != a ? a : b; });
}

// log(sum(exp(x))) of numbers that the threads of a block read pack by pack; NaN if any number is NaN.
template <typename T>
struct LogSumExp {
  static constexpr T kLowest = -static_cast<T>(INFINITY);
  T max = kLowest;
  T sum = 0;

  // present(j): whether values[j] counts.
  template <int kCount, int N, typename E, typename Present>
  __device__ void Add(const Pack<E, N> (&values)[kCount], const Present& present) {
    T now = max;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if (!present(j)) {
        continue;
      }
#pragma unroll
      for (int k = 0; k < N; ++k) {
        now = fmax(now, static_cast<T>(Widen(values[j].e[k])));  // ignores NaN
      }
    }
    const T base = now == kLowest ? T{0} : now;  // only -inf or NaN so far
    if (now != max) {
      sum *= Exp(max - base);
      max = now;
    }
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if (!present(j)) {
        continue;
      }
#pragma unroll
      for (int k = 0; k < N; ++k) {
        sum += Exp(Widen(values[j].e[k]) - base);  // NaN if any is
      }
    }
  }

  // Adds the numbers of `other`.
  __device__ void Add(const LogSumExp& other) {
    const T now = fmax(max, other.max);
    const T base = now == kLowest ? T{0} : now;
    // If one has seen no numbers, its sum is 0 or NaN.
    sum = sum * Exp(max == kLowest ? T{0} : max - base) +
          other.sum * Exp(other.max == kLowest ? T{0} : other.max - base);
    max = now;
  }

  // Combines all lanes of the warp; each gets the result.
  __device__ LogSumExp OfWarp() const {
    T warp_max = max;
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      warp_max = fmax(warp_max, __shfl_xor_sync(kEveryLane, warp_max, lanes));
    }
    const T base = warp_max == kLowest ? T{0} : warp_max;
    T total = sum * Exp(max == kLowest ? T{0} : max - base);
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      total += __shfl_xor_sync(kEveryLane, total, lanes);
    }
    return {warp_max, total};
  }

  // Combines all threads of the block; each gets the result.
  template <int kBlock>
  __device__ LogSumExp OfBlock() const {
    const T block_max = BlockMax<kBlock>(max);
    const T base = block_max == kLowest ? T{0} : block_max;
    return {block_max, BlockSum<kBlock>(sum * Exp(max == kLowest ? T{0} : max - base))};
  }

  // -inf if all numbers are -inf.
  __device__ T value() const { return (max == kLowest ? T{0} : max) + log(sum); }
};

// Returns the log-sum-exp of a row, which the block reads once.
template <int N, int kBlock = kThreads, typename E, typename T = Arithmetic<E>>
__device__ T BlockLogSumExp(const E* row, int64_t columns) {
  constexpr int kAtOnce = 4;  // number of packs that a thread reads before it uses any
  const int64_t packs = columns / N;
  LogSumExp<T> sum;
  for (int64_t first = threadIdx.x; first < packs; first += kAtOnce * kBlock) {
    Pack<E, N> values[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t i = first + j * kBlock;
      if (i < packs) {
        values[j] = PackAt<E, N>(row, i);
      }
    }
    sum.Add(values, [&](int j) { return first + j * kBlock < packs; });
  }
  return sum.template OfBlock<kBlock>().value();
}

inline unsigned Blocks(int64_t elements) {
  const int64_t blocks = (elements + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 65536 ? blocks : 65536);  // the kernels stride over the rest
}

// Loops over `elements` elements with all threads of the grid.
#define TANDEM_EACH(i, elements)                                                              \
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < (elements); \
       i += static_cast<int64_t>(gridDim.x) * kThreads)

}  // namespace tandem::ops::cuda
