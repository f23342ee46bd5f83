// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/device_kind.h"

namespace tandem::ops {

// The work memory of the operations on rows, in bytes; plain arithmetic. On the CPU they need none.

// On a GPU the rows of a norm are shared among so many blocks, whatever the GPU, each of which adds up a
// gradient of the weight.
inline constexpr int64_t kNormGroups = 528;  // four on each of an H100's multiprocessors

// What a norm's backward has kernels for there.
inline constexpr int64_t kMaxGpuNormBytes = 160 << 10;  // of a row of sums, in shared memory
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
  return RmsNormBackwardWorkBytes(device, tokens, 2 * head_dim, element_bytes);
}

// On a GPU the tokens are sorted by their ids: keys and places, before and behind, and what the sort itself
// needs.
constexpr int64_t EmbeddingBackwardWorkBytes(DeviceKind device, int64_t tokens) {
  return device == DeviceKind::kCpu ? 0 : 4 * ((tokens * 4 + 255) / 256 * 256) + tokens * 8 + (1 << 20);
}

}  // namespace tandem::ops
