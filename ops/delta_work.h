// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/delta_shape.h"
#include "ops/mixer_work.h"

namespace tandem::ops {

// The work memory of gated delta nets' operations, in bytes. This is plain arithmetic, as in mixer_work.h.

// Whether a GPU computes the recurrence on tensor cores (cuda/tensor_delta.h).
constexpr bool DeltasOnTensorCores(const DeltaShape& shape, int64_t element_bytes) {
  return element_bytes == 2 && (shape.key_dim == 64 || shape.key_dim == 128) && shape.value_dim % 64 == 0;
}

// With tensor cores: of each token the decay so far and β of its value heads, and what its queries and keys
// are divided by, in float; and in bfloat16 two matrices of a piece's tokens for each head (its solved
// system, and what tokens read of each other). States are passed on in registers.
constexpr int64_t TensorDeltaWorkBytes(const DeltaShape& shape) {
  return 4 * 2 * shape.tokens() * (shape.value_heads + shape.key_heads) +
         2 * 2 * Pieces(shape) * shape.value_heads * kScanPiece * kScanPiece;
}

// Without them: on a GPU, by piece of kScanPiece tokens: of each token the decay so far and β of its value
// heads, and what its queries and keys are divided by; the states before each piece, what each token writes
// to them, and two matrices of a piece's tokens for each head (its solved system, and what tokens read of
// each other).
constexpr int64_t DeltaPieceNumbers(const DeltaShape& shape) {
  return 2 * shape.tokens() * (shape.value_heads + shape.key_heads) + Pieces(shape) * shape.state() +
         shape.tokens() * shape.values() + 2 * Pieces(shape) * shape.value_heads * kScanPiece * kScanPiece;
}

// On a GPU, the largest number of partial sums of the gradient of a norm's weight, one for each warp.
inline constexpr int64_t kNormGateRows = 2112;
constexpr int64_t NormGateBackwardWorkBytes(DeviceKind device, int64_t rows, int64_t columns,
                                            int64_t element_bytes) {
  return device == DeviceKind::kCpu ? 0
                                    : std::min(rows, kNormGateRows) * columns * MixerSumBytes(element_bytes);
}

// On the CPU: the state of one head, a query and a key.
constexpr int64_t GatedDeltaWorkBytes(DeviceKind device, const DeltaShape& shape, int64_t element_bytes) {
  if (device == DeviceKind::kGpu && DeltasOnTensorCores(shape, element_bytes)) {
    return TensorDeltaWorkBytes(shape);
  }
  const int64_t numbers =
      device == DeviceKind::kCpu ? (shape.value_dim + 2) * shape.key_dim : DeltaPieceNumbers(shape);
  return numbers * MixerSumBytes(element_bytes);
}

// On a GPU, with tensor cores: the same, and in bfloat16 the state before each piece, the adjoint after it,
// what each token writes and its gradient; and two sums for each head in each piece. Without them: the same,
// and the adjoints of the states after each piece, the gradients of what tokens write before the system is
// solved, the gradients of queries and keys before the division, and two sums for each head in each piece. On
// the CPU: the adjoints of a sequence's states, the states of one channel in a chunk, the chunk's queries and
// keys with their gradients, and seven numbers for each of its tokens.
constexpr int64_t GatedDeltaBackwardWorkBytes(DeviceKind device, const DeltaShape& shape,
                                              int64_t element_bytes) {
  if (device == DeviceKind::kGpu && DeltasOnTensorCores(shape, element_bytes)) {
    const int64_t rounded = 2 * Pieces(shape) * shape.state() + 2 * shape.tokens() * shape.values();
    return TensorDeltaWorkBytes(shape) + 2 * rounded + 4 * 2 * Pieces(shape) * shape.value_heads;
  }
  const int64_t numbers = device == DeviceKind::kCpu
                              ? shape.state() + (5 * shape.chunk + 1) * shape.key_dim + 7 * shape.chunk
                              : DeltaPieceNumbers(shape) + Pieces(shape) * shape.state() +
                                    shape.tokens() * (shape.values() + 2 * shape.keys()) +
                                    2 * Pieces(shape) * shape.value_heads;
  return numbers * MixerSumBytes(element_bytes);
}

}  // namespace tandem::ops
