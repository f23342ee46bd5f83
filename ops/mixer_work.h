// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/device_kind.h"
#include "ops/scan_shape.h"

namespace tandem::ops {

// The work memory of the operations of Mamba-2 mixers, in bytes; plain arithmetic. element_bytes: of what is
// computed; sums of bfloat16 are of float.

constexpr int64_t MixerSumBytes(int64_t element_bytes) { return std::max<int64_t>(4, element_bytes); }

// The state of a head.
constexpr int64_t StateScanWorkBytes(const ScanShape& shape, int64_t element_bytes) {
  return shape.head_dim * shape.state * MixerSumBytes(element_bytes);
}

// The adjoints of a sequence's states, the states of one channel in a chunk, the gradients of the chunk's B
// and C, and four numbers a token of it.
constexpr int64_t StateScanBackwardWorkBytes(const ScanShape& shape, int64_t element_bytes) {
  return (shape.inner() * shape.state + (3 * shape.chunk + 1) * shape.state + 4 * shape.chunk) *
         MixerSumBytes(element_bytes);
}

}  // namespace tandem::ops
