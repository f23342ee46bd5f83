// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::ops {

// Token ids [sequences, length], rows `stride` apart (a part of a batch's columns).
struct Tokens {
  const int64_t* ids = nullptr;
  int64_t sequences = 0;
  int64_t length = 0;
  int64_t stride = 0;
};

}  // namespace tandem::ops
