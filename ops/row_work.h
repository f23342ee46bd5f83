// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/device_kind.h"

namespace tandem::ops {

// The work memory of operations on rows, in bytes. This is plain arithmetic. On the CPU they need none.

// On a GPU, the number of blocks among which the rows of a norm, or the tokens of heads' norms, are divided;
// each block sums a gradient of the weight. It is the same for every GPU: two and four blocks for each
// multiprocessor of an H100.
inline constexpr int64_t kNormGroups = 264;
inline constexpr int64_t kHeadNormGroups = 528;

// The largest head for which GPUs have kernels of head norms. jobspec refuses larger ones.
inline constexpr int64_t kMostGpuNormedHeadDim = 256;

// `element_bytes` is the size of an element of x. Sums of bfloat16 are float.
constexpr int64_t RmsNormBackwardWorkBytes(DeviceKind device, int64_t rows, int64_t columns,
                                           int64_t element_bytes) {
  return device == DeviceKind::kCpu
             ? 0
             : std::min(rows, kNormGroups) * columns * std::max<int64_t>(4, element_bytes);
}

// For the weights of the norms of query and key heads (head_norm.h).
constexpr int64_t HeadNormBackwardWorkBytes(DeviceKind device, int64_t tokens, int64_t head_dim,
                                            int64_t element_bytes) {
  return device == DeviceKind::kCpu
             ? 0
             : std::min(tokens, kHeadNormGroups) * 2 * head_dim * std::max<int64_t>(4, element_bytes);
}

// For the sums over each group's rows.
constexpr int64_t QkvBiasBackwardWorkBytes(DeviceKind device, int64_t tokens, int64_t columns,
                                           int64_t element_bytes) {
  return RmsNormBackwardWorkBytes(device, tokens, columns, element_bytes);
}

// On a GPU the tokens are sorted by id. This is for keys and places before and after the sort, and the sort
// itself.
constexpr int64_t EmbeddingBackwardWorkBytes(DeviceKind device, int64_t tokens) {
  return device == DeviceKind::kCpu ? 0 : 4 * ((tokens * 4 + 255) / 256 * 256) + tokens * 8 + (1 << 20);
}

}  // namespace tandem::ops
