// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_memory.h"

#include <nccl.h>

#include <cstddef>
#include <string>

#include "comm/nccl_error.h"
#include "device/cuda/current.h"

namespace tandem::comm {
namespace {

void* Allocate(int device, int64_t bytes) {
  void* begin = nullptr;
  if (bytes > 0) {
    const device::CudaGuard guard(device);
    const ncclResult_t result = ncclMemAlloc(&begin, static_cast<size_t>(bytes));
    if (result != ncclSuccess) {
      device::ThrowOutOfMemory(device, bytes, " (NCCL: " + NcclErrorText(result, nullptr) + ")");
    }
  }
  return begin;
}

}  // namespace

NcclRegion::NcclRegion(int device, int64_t bytes)
    : CudaRegion(device, Allocate(device, bytes), bytes, [](void* begin) { ncclMemFree(begin); }) {}

}  // namespace tandem::comm
