// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::ops {

// Device memory, aligned to 256 bytes, that an operation may use while it runs. Its content is undefined
// before and after. Operations on one stream may share it.
struct Workspace {
  void* begin = nullptr;
  int64_t bytes = 0;
};

}  // namespace tandem::ops
