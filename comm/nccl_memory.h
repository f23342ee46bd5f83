// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/device.h"

namespace tandem::comm {

// Memory of a GPU that NCCL can register: ncclMemAlloc's.
class NcclRegion final : public device::Region {
 public:
  // Allocates on GPU `device`. Throws OutOfMemory.
  NcclRegion(int device, int64_t bytes);
  ~NcclRegion() override;

  char* begin() const override { return static_cast<char*>(begin_); }
  int64_t bytes() const override { return bytes_; }

 private:
  const int device_;
  const int64_t bytes_;
  void* begin_ = nullptr;
};

}  // namespace tandem::comm
