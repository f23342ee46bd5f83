// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/device_kind.h"

namespace tandem::ops {

// Work memory of one matrix product of operations.h, in bytes.

// On the CPU, products of bfloat16 are computed in tiles of float: two operand tiles of kTileRows x
// kTileDepth and one output tile of kTileRows x kTileRows.
inline constexpr int64_t kTileRows = 256;
inline constexpr int64_t kTileDepth = 512;
inline constexpr int64_t kTileBytes = (2 * kTileRows * kTileDepth + kTileRows * kTileRows) * 4;

// On a GPU: the memory for which cuBLASLt may choose algorithms; NVIDIA recommends this size for the largest
// GPUs.
inline constexpr int64_t kGpuLinearWorkBytes = int64_t{32} << 20;

// For products of operands with `element_bytes`-byte elements.
constexpr int64_t LinearWorkBytes(DeviceKind device, int64_t element_bytes) {
  return device == DeviceKind::kGpu ? kGpuLinearWorkBytes : element_bytes < 4 ? kTileBytes : 0;
}

}  // namespace tandem::ops
