// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>

namespace tandem::ops::cuda {

// Of the current GPU; 0 where the runtime does not say.
inline int GpuAttribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) {
    return 0;
  }
  return value;
}

// Of dynamic shared memory, that a block of the current GPU may ask for where its kernel has at most 4 KiB of
// its own.
inline int MaxDynamicSharedBytes() {
  constexpr int kOwnBytes = 4 << 10;
  return std::max(0, GpuAttribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kOwnBytes);
}

}  // namespace tandem::ops::cuda
