// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::ops {

// The work memory of the attention kernels, in elements; plain arithmetic.

// Query rows that are handled together.
inline constexpr int64_t kAttentionBlockRows = 32;

// Matrices with a head's dims as columns, and with a sequence's positions as columns, are padded to whole
// cache lines; the latter by one more, so that the rows do not all fall into the same few sets of the cache.
constexpr int64_t AttentionPaddedDim(int64_t head_dim, int64_t element_bytes) {
  const int64_t line = 64 / element_bytes;
  return (head_dim + line - 1) / line * line;
}

constexpr int64_t AttentionRowStride(int64_t length, int64_t element_bytes) {
  const int64_t pair = 2 * 64 / element_bytes;
  return (length + pair - 1) / pair * pair + pair / 2;
}

// Two packed matrices, one block of scores, two blocks of rows.
constexpr int64_t AttentionWorkElements(int64_t length, int64_t head_dim, int64_t element_bytes) {
  const int64_t stride = AttentionRowStride(length, element_bytes);
  const int64_t dim = AttentionPaddedDim(head_dim, element_bytes);
  return 2 * dim * stride + kAttentionBlockRows * (stride + 2 * dim);
}

// Five packed matrices, two blocks of scores, three blocks of rows.
constexpr int64_t AttentionBackwardWorkElements(int64_t length, int64_t head_dim, int64_t element_bytes) {
  const int64_t stride = AttentionRowStride(length, element_bytes);
  const int64_t dim = AttentionPaddedDim(head_dim, element_bytes);
  return 5 * dim * stride + kAttentionBlockRows * (2 * stride + 3 * dim);
}

}  // namespace tandem::ops
