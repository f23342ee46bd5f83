// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/attention_shape.h"
#include "ops/device_kind.h"

namespace tandem::ops {

// The size of attention's work memory, and the constants that decide it. This is plain arithmetic, so a plan
// needs no GPU.

// In bytes. `element_bytes` is the size of an element of q, k and v. 2 means bfloat16, whose statistics are
// float.
int64_t AttentionWorkBytes(DeviceKind device, const AttentionShape& shape, int64_t element_bytes);
int64_t AttentionBackwardWorkBytes(DeviceKind device, const AttentionShape& shape, int64_t element_bytes);

// On the CPU, the number of query rows, and of keys, whose scores are computed together. In the backward a
// block of keys needs five matrices with a head's dims and two of scores; with 64 floats they fit into half a
// MiB of cache.
inline constexpr int64_t kAttentionBlockRows = 32;
inline constexpr int64_t kAttentionBlockKeys = 256;

// On the CPU, the number of query rows that pass over all their keys together. The more there are, the less
// often keys and values are read from memory. The forward keeps the scores of these rows for the whole
// sequence, so its number is smaller.
inline constexpr int64_t kAttentionForwardRows = 64;
inline constexpr int64_t kAttentionBackwardRows = 256;

// Matrices that have a head's dims as columns are padded to whole cache lines, and those that have a
// sequence's positions to two. Rows of a block's scores are padded by one line more, so that they do not all
// map to the same few cache sets.
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

// The forward's work memory on the CPU, in elements of the arithmetic type: transposed keys; values; the
// queries and outputs of kAttentionForwardRows rows; the scores of these rows, block by block.
constexpr int64_t AttentionWorkElements(int64_t length, int64_t head_dim, int64_t element_bytes) {
  const int64_t padded = AttentionPaddedLength(length, element_bytes);
  const int64_t dim = AttentionPaddedDim(head_dim, element_bytes);
  const int64_t rows = std::min(length, kAttentionForwardRows);
  const int64_t blocks = (length + kAttentionBlockKeys - 1) / kAttentionBlockKeys;
  return padded * head_dim + length * dim + 2 * rows * dim +
         blocks * rows * AttentionScoreStride(length, element_bytes);
}

// The backward's work memory on the CPU, in elements of the arithmetic type: transposed keys and values;
// keys; the gradients of keys and values; two blocks of scores; the queries, their gradients and the
// context's gradients of kAttentionBackwardRows rows.
constexpr int64_t AttentionBackwardWorkElements(int64_t length, int64_t head_dim, int64_t element_bytes) {
  const int64_t padded = AttentionPaddedLength(length, element_bytes);
  const int64_t dim = AttentionPaddedDim(head_dim, element_bytes);
  const int64_t rows = std::min(length, kAttentionBackwardRows);
  return 2 * padded * head_dim + 3 * length * dim +
         2 * kAttentionBlockRows * AttentionScoreStride(length, element_bytes) + 3 * rows * dim;
}

// On a GPU: the largest head_dim that cuDNN's kernels have on every GPU, and on those of capability 9.x. A
// plan does not know the GPU, so for heads between these sizes the work memory is enough with and without
// cuDNN.
inline constexpr int64_t kFlashHeadDim = 128;
inline constexpr int64_t kHopperFlashHeadDim = 256;

// Whether cuDNN computes attention of this shape on a GPU with kernels for heads of at most `most_dims`. It
// does for bfloat16, if it has kernels for the length and the heads.
constexpr bool IsFlashAttention(const AttentionShape& shape, int64_t element_bytes, int64_t most_dims) {
  return element_bytes == 2 && shape.length > 1 && shape.head_dim % 8 == 0 && shape.head_dim <= most_dims;
}

// Work memory that is reserved for needs of cuDNN's plans that are not documented. Without documents the
// forward has no other work memory.
inline constexpr int64_t kFlashSlackBytes = int64_t{1} << 20;

// The size of a copy of the documents' starts, which is at the beginning of the work memory.
int64_t FlashStartsBytes(const AttentionShape& shape);

// cuDNN's backward is called once for the whole batch if its bits need not repeat. The backward whose bits
// repeat needs memory for the gradients of the scores, in bfloat16, while it runs. It is therefore called for
// some whole sequences at a time, or for some key-value heads of one sequence with the query heads that read
// them: as many as keep these gradients below kScoreGradientBytes, but at least one.
inline constexpr int64_t kScoreGradientBytes = int64_t{2} << 30;
AttentionShape FlashBackwardPart(const AttentionShape& shape);

// If cuDNN does not compute the shape: the number of query rows of one sequence whose scores are in memory
// together, for one query head of each key-value head. It is the largest number that keeps the scores below
// kScoreBlockBytes, but at least one.
inline constexpr int64_t kScoreBlockBytes = int64_t{64} << 20;
int64_t ScoreBlockRows(const AttentionShape& shape, int64_t element_bytes);

}  // namespace tandem::ops
