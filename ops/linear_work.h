// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/device_kind.h"

namespace tandem::ops {

// What one matrix product of operations.h may use of memory beside its operands, in bytes.

// On the CPU, where operands are of another type than what is computed in. Tiles of the output, and of the
// sum that a tile of it is computed from at a time: two of operands and one of the output, in float.
inline constexpr int64_t kTileRows = 256;
inline constexpr int64_t kTileDepth = 512;
inline constexpr int64_t kTileBytes = (2 * kTileRows * kTileDepth + kTileRows * kTileRows) * 4;

// On a GPU: what cuBLASLt may choose algorithms for, as much as its makers advise for the largest GPUs.
inline constexpr int64_t kGpuLinearWorkBytes = int64_t{32} << 20;

// Of products whose operands are of `element_bytes`-byte elements.
constexpr int64_t LinearWorkBytes(DeviceKind device, int64_t element_bytes) {
  return device == DeviceKind::kGpu ? kGpuLinearWorkBytes : element_bytes < 4 ? kTileBytes : 0;
}

}  // namespace tandem::ops
