// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>

namespace tandem::ops::cuda {

// An attribute of the current GPU; 0 if the runtime does not know it.
inline int GpuAttribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) {
    return 0;
  }
  return value;
}

// The dynamic shared memory that a block of the current GPU may use if its kernel has at most 4 KiB of static
// shared memory.
inline int MaxDynamicSharedBytes() {
  constexpr int kOwnBytes = 4 << 10;
  return std::max(0, GpuAttribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kOwnBytes);
}

}  // namespace tandem::ops::cuda
