// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::ops {

// Memory of the device, aligned to 256 bytes, that an operation may use while it runs. What is in it before
// and behind means nothing; operations on one stream may share it.
struct Workspace {
  void* begin = nullptr;
  int64_t bytes = 0;
};

}  // namespace tandem::ops
