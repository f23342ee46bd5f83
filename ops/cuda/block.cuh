#pragma once

#include <cstdint>

#include "ops/cuda/elements.cuh"

namespace tandem::ops::cuda {

// What every row kernel does: one block a row, kThreads threads, sums as trees of one shape.
constexpr int kThreads = 256;

// Over all threads of the block, the same on each; the order depends on kThreads alone.
template <typename T, typename Combine>
__device__ T BlockReduce(T value, Combine combine) {
  __shared__ T shared[kThreads];
  __syncthreads();  // the last reduction's readers
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    __syncthreads();
  }
  return shared[0];
}

template <typename T>
__device__ T BlockSum(T value) {
  return BlockReduce(value, [](T a, T b) { return a + b; });
}

template <typename T>
__device__ T BlockMax(T value) {
  return BlockReduce(value, [](T a, T b) { return a > b || a != a ? a : b; });
}

// log(sum(exp(row))) of a row that the block shares; NaN where any is.
template <typename E, typename T = Arithmetic<E>>
__device__ T BlockLogSumExp(const E* row, int64_t columns) {
  T most = Widen(row[0]);
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    const T value = Widen(row[i]);
    most = value > most || value != value ? value : most;
  }
  most = BlockMax(most);
  T sum = 0;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) sum += exp(Widen(row[i]) - most);
  return most + log(BlockSum(sum));
}

inline unsigned Blocks(int64_t elements) {
  const int64_t blocks = (elements + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 65536 ? blocks : 65536);  // kernels stride over the rest
}

// The elements of a grid-wide loop.
#define TANDEM_EACH(i, elements)                                                              \
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < (elements); \
       i += static_cast<int64_t>(gridDim.x) * kThreads)

}  // namespace tandem::ops::cuda
