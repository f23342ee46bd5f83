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

// On the CPU. Query rows and keys whose scores are computed together. What a block of keys takes in the
// backward, five matrices of its heads' dims and two of scores, fits in half a MiB of cache with 64 floats.
inline constexpr int64_t kAttentionBlockRows = 32;
inline constexpr int64_t kAttentionBlockKeys = 256;

// Query rows that go through all of their keys together: the longer they stay, the fewer times keys and
// values come from far. The forward keeps their scores of the whole sequence, so it takes fewer.
inline constexpr int64_t kAttentionForwardRows = 64;
inline constexpr int64_t kAttentionBackwardRows = 256;

// Matrices with a head's dims as columns are padded to whole cache lines, those with a sequence's positions
// as columns to two; the rows of a block's scores by one more, so that they do not all fall into the same few
// sets of the cache.
constexpr int64_t AttentionPaddedDim(int64_t head_dim, int64_t element_bytes) {
  const int64_t line = 64 / element_bytes;
  return (head_dim + line - 1) / line * line;
}

constexpr int64_t AttentionPaddedLength(int64_t length, int64_t element_bytes) {
  const int64_t pair = 2 * 64 / element_bytes;
  return (length + pair - 1) / pair * pair;
}

constexpr int64_t AttentionScoreStride(int64_t length, int64_t element_bytes) {
  const int64_t keys = length < kAttentionBlockKeys ? length : kAttentionBlockKeys;
  return AttentionPaddedLength(keys, element_bytes) + 64 / element_bytes;
}

// Keys, transposed, and values; queries and outputs of rows; their scores in blocks. Elements of what is
// computed in.
constexpr int64_t AttentionWorkElements(int64_t length, int64_t head_dim, int64_t element_bytes) {
  const int64_t padded = AttentionPaddedLength(length, element_bytes);
  const int64_t dim = AttentionPaddedDim(head_dim, element_bytes);
  const int64_t rows = std::min(length, kAttentionForwardRows);
  const int64_t blocks = (length + kAttentionBlockKeys - 1) / kAttentionBlockKeys;
  return padded * head_dim + length * dim + 2 * rows * dim +
         blocks * rows * AttentionScoreStride(length, element_bytes);
}

// Keys and values, transposed; keys and the gradients of both; two blocks of scores; of rows the queries, the
// context's gradients and their own.
constexpr int64_t AttentionBackwardWorkElements(int64_t length, int64_t head_dim, int64_t element_bytes) {
  const int64_t padded = AttentionPaddedLength(length, element_bytes);
  const int64_t dim = AttentionPaddedDim(head_dim, element_bytes);
  const int64_t rows = std::min(length, kAttentionBackwardRows);
  return 2 * padded * head_dim + 3 * length * dim +
         2 * kAttentionBlockRows * AttentionScoreStride(length, element_bytes) + 3 * rows * dim;
}

// On a GPU. The most dims of a head that cuDNN's kernels have on every GPU, and on those of capability 9.x. A
// plan does not know the GPU, so work memory for heads between these is enough with cuDNN and without.
inline constexpr int64_t kFlashHeadDim = 128;
inline constexpr int64_t kHopperFlashHeadDim = 256;

// Whether cuDNN computes attention of this shape, on a GPU where a head has at most `most_dims`: bfloat16,
// and lengths and heads that its kernels have.
constexpr bool IsFlashAttention(const AttentionShape& shape, int64_t element_bytes, int64_t most_dims) {
  return element_bytes == 2 && shape.length > 1 && shape.head_dim % 8 == 0 && shape.head_dim <= most_dims;
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
