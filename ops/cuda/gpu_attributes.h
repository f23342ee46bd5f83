// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>

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

// Whether all matrices begin at multiples of 16 bytes, as copies of packs require.
inline bool BeginAtPacks(std::initializer_list<const void*> matrices) {
  return std::all_of(matrices.begin(), matrices.end(),
                     [](const void* matrix) { return reinterpret_cast<uintptr_t>(matrix) % 16 == 0; });
}

// Also whether a block of the current GPU may use so many bytes of dynamic shared memory.
inline bool FitsBlock(size_t shared_bytes, std::initializer_list<const void*> matrices) {
  return static_cast<int>(shared_bytes) <= MaxDynamicSharedBytes() && BeginAtPacks(matrices);
}

}  // namespace tandem::ops::cuda
