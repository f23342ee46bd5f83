#pragma once

#include <cstdint>

namespace tandem::ops {

// Tiles of a product whose operands are of another type than what is computed in: of the output, and of the
// sum that a tile of it is computed from at a time.
inline constexpr int64_t kTileRows = 256;
inline constexpr int64_t kTileDepth = 512;

// What one matrix product of operations.h may use of memory beside its operands, in bytes, on any device:
// two tiles of operands and one of the output, in float. LibTorch's products keep their own, outside the
// arena.
inline constexpr int64_t kLinearWorkBytes = (2 * kTileRows * kTileDepth + kTileRows * kTileRows) * 4;

// Of products whose operands are of `element_bytes`-byte elements.
constexpr int64_t LinearWorkBytes(int64_t element_bytes) { return element_bytes < 4 ? kLinearWorkBytes : 0; }

}  // namespace tandem::ops
