// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tandem::ops::cuda {

// Over the lanes of a warp, the same on each; a tree of one shape.
template <typename T>
__device__ T WarpSum(T value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFF, value, lanes);
  }
  return value;
}

}  // namespace tandem::ops::cuda
