// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/elements.h"
#include "tests/device/tensors.h"

namespace tandem::checkpoint {

// Returns the elements of a contiguous tensor on the host, valid as long as the tensor.
inline Elements ElementsOf(const at::Tensor& tensor) {
  return {.memory = device::MemoryOf(tensor), .type = device::KindOf(tensor)};
}

}  // namespace tandem::checkpoint
