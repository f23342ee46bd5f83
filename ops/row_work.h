// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/device_kind.h"

namespace tandem::ops {

// The work memory of the operations on rows, in bytes; plain arithmetic. On the CPU they need none.

// On a GPU the rows of a norm, and the tokens of heads' norms, are shared among so many blocks, whatever the
// GPU, each of which adds up a gradient of the weight: two and four on each of an H100's multiprocessors.
inline constexpr int64_t kNormGroups = 264;
inline constexpr int64_t kHeadNormGroups = 528;

// What heads' norms have kernels for there. jobspec refuses more.
inline constexpr int64_t kMostGpuNormedHeadDim = 256;

// element_bytes: of x; sums of bfloat16 are of float.
constexpr int64_t RmsNormBackwardWorkBytes(DeviceKind device, int64_t rows, int64_t columns,
                                           int64_t element_bytes) {
  return device == DeviceKind::kCpu
             ? 0
             : std::min(rows, kNormGroups) * columns * std::max<int64_t>(4, element_bytes);
}

// The weights of query and key heads' norms (head_norm.h).
constexpr int64_t HeadNormBackwardWorkBytes(DeviceKind device, int64_t tokens, int64_t head_dim,
                                            int64_t element_bytes) {
  return device == DeviceKind::kCpu
             ? 0
             : std::min(tokens, kHeadNormGroups) * 2 * head_dim * std::max<int64_t>(4, element_bytes);
}

// Of the sums of a group's rows.
constexpr int64_t QkvBiasBackwardWorkBytes(DeviceKind device, int64_t tokens, int64_t columns,
                                           int64_t element_bytes) {
  return RmsNormBackwardWorkBytes(device, tokens, columns, element_bytes);
}

// On a GPU the tokens are sorted by their ids: keys and places, before and behind, and what the sort itself
// needs.
constexpr int64_t EmbeddingBackwardWorkBytes(DeviceKind device, int64_t tokens) {
  return device == DeviceKind::kCpu ? 0 : 4 * ((tokens * 4 + 255) / 256 * 256) + tokens * 8 + (1 << 20);
}

}  // namespace tandem::ops
