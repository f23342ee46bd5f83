// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_memory.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <string>

#include "comm/nccl_error.h"
#include "device/cuda/check.h"
#include "device/cuda/current.h"

namespace tandem::comm {

NcclRegion::NcclRegion(int device, int64_t bytes) : device_(device), bytes_(bytes) {
  if (bytes_ == 0) {
    return;
  }
  const device::CudaGuard guard(device_);
  const ncclResult_t result = ncclMemAlloc(&begin_, static_cast<size_t>(bytes_));
  if (result != ncclSuccess) {
    size_t free = 0;
    size_t total = 0;
    cudaGetLastError();
    device::CheckCuda(cudaMemGetInfo(&free, &total), "memory of the GPU");
    throw device::OutOfMemory("GPU " + std::to_string(device_) + " has " + std::to_string(free) + " of " +
                              std::to_string(total) + " bytes free, the job needs " + std::to_string(bytes_) +
                              " of them (NCCL: " + NcclErrorText(result, nullptr) + ")");
  }
}

NcclRegion::~NcclRegion() {
  if (begin_ == nullptr) {
    return;
  }
  const device::CudaGuard guard(device_);
  ncclMemFree(begin_);
}

}  // namespace tandem::comm
