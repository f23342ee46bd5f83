// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/delta_shape.h"
#include "ops/mixer_work.h"

namespace tandem::ops {

// The work memory of the operations of gated delta nets, in bytes; plain arithmetic, as mixer_work.h.

// On a GPU, by piece of kScanPiece tokens: of each token the decay so far and β of its value heads, and what
// its queries and keys are divided by; the states before each piece, what each token writes to them, and two
// matrices of a piece's tokens for each head (its solved system, and what tokens read of each other).
constexpr int64_t DeltaPieceNumbers(const DeltaShape& shape) {
  return 2 * shape.tokens() * (shape.value_heads + shape.key_heads) + Pieces(shape) * shape.state() +
         shape.tokens() * shape.values() + 2 * Pieces(shape) * shape.value_heads * kScanPiece * kScanPiece;
}

// The sums of the gradient of a weight by so many rows at most, on a GPU.
inline constexpr int64_t kNormGateRows = 2112;
constexpr int64_t NormGateBackwardWorkBytes(DeviceKind device, int64_t rows, int64_t columns,
                                            int64_t element_bytes) {
  return device == DeviceKind::kCpu ? 0
                                    : std::min(rows, kNormGateRows) * columns * MixerSumBytes(element_bytes);
}

// On the CPU: the state of a head, and a query and a key.
constexpr int64_t GatedDeltaWorkBytes(DeviceKind device, const DeltaShape& shape, int64_t element_bytes) {
  const int64_t numbers =
      device == DeviceKind::kCpu ? (shape.value_dim + 2) * shape.key_dim : DeltaPieceNumbers(shape);
  return numbers * MixerSumBytes(element_bytes);
}

// On a GPU: the same, the adjoints of the states behind each piece, the gradients of what tokens write before
// the system is solved and of queries and keys before they are divided, and two sums of each head in each
// piece. On the CPU: the adjoints of a sequence's states, the states of one channel in a chunk, the chunk's
// queries and keys with their gradients, and seven numbers a token of it.
constexpr int64_t GatedDeltaBackwardWorkBytes(DeviceKind device, const DeltaShape& shape,
                                              int64_t element_bytes) {
  const int64_t numbers = device == DeviceKind::kCpu
                              ? shape.state() + (5 * shape.chunk + 1) * shape.key_dim + 7 * shape.chunk
                              : DeltaPieceNumbers(shape) + Pieces(shape) * shape.state() +
                                    shape.tokens() * (shape.values() + 2 * shape.keys()) +
                                    2 * Pieces(shape) * shape.value_heads;
  return numbers * MixerSumBytes(element_bytes);
}

}  // namespace tandem::ops
