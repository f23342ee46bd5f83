// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/attention_shape.h"
#include "ops/device_kind.h"

namespace tandem::ops {

// The work memory of attention, and what decides it: plain arithmetic, so that a plan needs no GPU.

// In bytes. element_bytes: of q, k and v; 2 is bfloat16, whose statistics are of float.
int64_t AttentionWorkBytes(DeviceKind device, const AttentionShape& shape, int64_t element_bytes);
int64_t AttentionBackwardWorkBytes(DeviceKind device, const AttentionShape& shape, int64_t element_bytes);

// On the CPU. Query rows that are handled together.
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

// Two packed matrices, one block of scores, two blocks of rows; elements of what is computed in.
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

// On a GPU. Whether cuDNN computes attention of this shape: bfloat16, and lengths and heads that its kernels
// have.
constexpr bool IsFlashAttention(const AttentionShape& shape, int64_t element_bytes) {
  return element_bytes == 2 && shape.length > 1 && shape.head_dim % 8 == 0 && shape.head_dim <= 128;
}

// What cuDNN's plans take beside what is known of them; the forward takes none of the rest.
inline constexpr int64_t kFlashSlackBytes = int64_t{1} << 20;

// In front of that, where documents begin.
int64_t FlashStartsBytes(const AttentionShape& shape);

// cuDNN's backward is called for the whole batch where its bits need not repeat. The one that repeats them
// keeps the gradients of the scores, in bfloat16, while it runs; so it is called for some whole sequences at
// a time, or for some key-value heads of one with the query heads that read them: as many as keep them below
// kScoreGradientBytes, but at least one.
inline constexpr int64_t kScoreGradientBytes = int64_t{2} << 30;
AttentionShape FlashBackwardPart(const AttentionShape& shape);

// Query rows of one sequence whose scores are in memory together, for one query head of each key-value head,
// where cuDNN does not compute: as many as keep them below kScoreBlockBytes, but at least one.
inline constexpr int64_t kScoreBlockBytes = int64_t{64} << 20;
int64_t ScoreBlockRows(const AttentionShape& shape, int64_t element_bytes);

}  // namespace tandem::ops
