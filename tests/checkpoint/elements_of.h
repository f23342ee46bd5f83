// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/elements.h"
#include "tests/device/tensors.h"

namespace tandem::checkpoint {

// Those of a contiguous tensor on the host, as long as it lives.
inline Elements ElementsOf(const at::Tensor& tensor) {
  return {.memory = device::MemoryOf(tensor), .type = device::KindOf(tensor)};
}

}  // namespace tandem::checkpoint
