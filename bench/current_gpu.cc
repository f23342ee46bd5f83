// SPDX-License-Identifier: Apache-2.0
#include "bench/current_gpu.h"

#include <cuda_runtime_api.h>

#include "device/cuda/check.h"

namespace tandem::bench {

std::string CurrentGpuName() {
  int device = 0;
  device::CheckCuda(cudaGetDevice(&device), "the current GPU");
  cudaDeviceProp properties{};
  device::CheckCuda(cudaGetDeviceProperties(&properties, device), "properties of the GPU");
  return properties.name;
}

}  // namespace tandem::bench
