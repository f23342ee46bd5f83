// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/block.cuh"

namespace tandem::ops::cuda {

// sums (+)= the rows of partial_sums, which are row_stride apart. A block of kThreads adds 32 columns; each
// warp adds every kWarps-th row.
template <typename T>
__global__ void AddPartialSums(const T* partial_sums, int64_t row_stride, int64_t rows, int64_t columns,
                               bool add, T* sums) {
  __shared__ T shared[kWarps][32];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + lane;
  T sum = 0;
  if (column < columns) {
#pragma unroll 8
    for (int64_t row = warp; row < rows; row += kWarps) {
      sum += partial_sums[row * row_stride + column];
    }
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || column >= columns) {
    return;
  }
  T total = add ? sums[column] : T{0};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    total += shared[w][lane];
  }
  sums[column] = total;
}

inline unsigned PartialSumBlocks(int64_t columns) { return static_cast<unsigned>((columns + 31) / 32); }

}  // namespace tandem::ops::cuda
