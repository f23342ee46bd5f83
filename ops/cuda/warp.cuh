// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::ops::cuda {

constexpr unsigned kEveryLane = 0xFFFFFFFF;

__device__ inline int LaneOf() { return static_cast<int>(threadIdx.x % 32); }

// The sum over the lanes of a warp, the same on each lane, added as a tree of one shape.
template <typename T>
__device__ T WarpSum(T value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value += __shfl_xor_sync(kEveryLane, value, lanes);
  }
  return value;
}

// The sum of the values of all lanes up to and including this one.
__device__ inline int64_t InclusiveWarpSum(int64_t value) {
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const int64_t before = __shfl_up_sync(kEveryLane, value, lanes);
    if (LaneOf() >= lanes) {
      value += before;
    }
  }
  return value;
}

}  // namespace tandem::ops::cuda
