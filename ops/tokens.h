// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::ops {

// The id of a target that does not count: it adds no loss, and its logits have no gradient.
inline constexpr int64_t kNotCounted = -1;

// Token ids [sequences, length], rows `stride` apart, because they may be some of a batch's columns.
struct Tokens {
  const int64_t* ids = nullptr;
  int64_t sequences = 0;
  int64_t length = 0;
  int64_t stride = 0;
};

}  // namespace tandem::ops
