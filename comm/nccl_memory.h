// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/cuda/device.h"

namespace tandem::comm {

// Memory of a GPU that NCCL can register: ncclMemAlloc's.
class NcclRegion final : public device::CudaRegion {
 public:
  // Allocates on GPU `device`. Throws OutOfMemory.
  NcclRegion(int device, int64_t bytes);
};

}  // namespace tandem::comm
