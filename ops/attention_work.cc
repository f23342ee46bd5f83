// SPDX-License-Identifier: Apache-2.0
#include "ops/attention_work.h"

namespace tandem::ops {
namespace {

constexpr int64_t Aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

int64_t StatisticsBytes(int64_t element_bytes) { return std::max<int64_t>(4, element_bytes); }

// The bytes of `matrices` blocks of scores and, for bfloat16, of `columns` columns of a sequence in float.
int64_t BlockedBytes(const AttentionShape& s, int64_t element_bytes, int64_t matrices, int64_t columns) {
  const int64_t scores =
      s.kv_heads * ScoreBlockRows(s, element_bytes) * s.length * StatisticsBytes(element_bytes);
  return matrices * Aligned(scores) + (element_bytes == 2 ? Aligned(s.length * columns * 4) : 0);
}

// The bytes of the GPU's path. If the path depends on the GPU, which a plan does not know, the larger
// number.
int64_t EitherBytes(const AttentionShape& s, int64_t element_bytes, int64_t flash, int64_t blocked) {
  if (IsFlashAttention(s, element_bytes, kFlashHeadDim)) {
    return flash;
  }
  return IsFlashAttention(s, element_bytes, kHopperFlashHeadDim) ? std::max(flash, blocked) : blocked;
}

// The bytes of the gradients of one query head's scores in one sequence; the kernels' tiles are 64 x 128.
int64_t ScoreGradientBytes(const AttentionShape& s) {
  return (s.length + 63) / 64 * 64 * ((s.length + 127) / 128 * 128) * 2;
}

// The bytes of the gradients of scores, or of queries in float, to which blocks add; of the sums of context
// times its gradient; and if query heads share a key-value head, of the gradients of keys and values of each
// query head, before they are added up.
int64_t FlashBackwardBytes(const AttentionShape& s) {
  const AttentionShape part = FlashBackwardPart(s);
  const int64_t rows = part.sequences * part.heads * part.length;
  const int64_t own = part.heads == part.kv_heads ? 0 : 2 * rows * part.head_dim * 2;
  const int64_t sums =
      part.repeats ? part.sequences * part.heads * ScoreGradientBytes(part) : rows * part.head_dim * 4;
  return FlashStartsBytes(s) + sums + rows * 4 + own + kFlashSlackBytes;
}

}  // namespace

int64_t FlashStartsBytes(const AttentionShape& shape) {
  return shape.documents ? Aligned(shape.tokens() * 4) : 0;
}

AttentionShape FlashBackwardPart(const AttentionShape& shape) {
  AttentionShape part = shape;
  if (!shape.repeats || shape.tokens() == 0) {
    return part;
  }
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t of_kv_head = group * ScoreGradientBytes(shape);
  const int64_t kv_heads = std::max<int64_t>(1, kScoreGradientBytes / of_kv_head);
  part.sequences = std::clamp<int64_t>(kv_heads / shape.kv_heads, 1, shape.sequences);
  // The number divides that of all heads, so that every part has the same shape, and one graph serves all.
  part.kv_heads = std::min(kv_heads, shape.kv_heads);
  while (shape.kv_heads % part.kv_heads != 0) {
    --part.kv_heads;
  }
  while (shape.sequences % part.sequences != 0) {
    --part.sequences;
  }
  part.heads = part.kv_heads * group;
  return part;
}

int64_t ScoreBlockRows(const AttentionShape& shape, int64_t element_bytes) {
  const int64_t row = shape.kv_heads * shape.length * StatisticsBytes(element_bytes);
  return std::clamp<int64_t>(kScoreBlockBytes / row, 1, shape.length);
}

int64_t AttentionWorkBytes(DeviceKind device, const AttentionShape& s, int64_t element_bytes) {
  if (device == DeviceKind::kCpu) {
    const int64_t bytes = StatisticsBytes(element_bytes);
    return AttentionWorkElements(s.length, s.head_dim, bytes) * bytes;
  }
  if (s.tokens() == 0) {
    return 0;
  }
  return EitherBytes(s, element_bytes, FlashStartsBytes(s) + kFlashSlackBytes,
                     BlockedBytes(s, element_bytes, 1, s.qkv_columns() + s.context_columns()));
}

int64_t AttentionBackwardWorkBytes(DeviceKind device, const AttentionShape& s, int64_t element_bytes) {
  if (device == DeviceKind::kCpu) {
    const int64_t bytes = StatisticsBytes(element_bytes);
    return AttentionBackwardWorkElements(s.length, s.head_dim, bytes) * bytes;
  }
  if (s.tokens() == 0) {
    return 0;
  }
  return EitherBytes(s, element_bytes, FlashBackwardBytes(s),
                     BlockedBytes(s, element_bytes, 2, 2 * s.qkv_columns() + s.context_columns()));
}

}  // namespace tandem::ops
