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

// The forward on tensor cores needs, in float: the sum of log decays and β for each token and value head, and
// the reciprocal lengths of query and key for each token and key head. In bfloat16: for each piece and value
// head, the matrices `solved` and `reads` (cuda/gated_delta.cuh). States are in registers.
constexpr int64_t TensorDeltaWorkBytes(const DeltaShape& shape) {
  return 4 * 2 * shape.tokens() * (shape.value_heads + shape.key_heads) +
         2 * 2 * Pieces(shape) * shape.value_heads * kScanPiece * kScanPiece;
}

// The forward on a GPU without tensor cores needs so many numbers: the same as above, the states before each
// piece, and what each token writes to them.
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

// On a GPU the backward needs the memory of the forward, two sums for each head in each piece, and more. With
// tensor cores, in bfloat16: the state before each piece, the adjoint after it, what each token writes to the
// state, and the gradient of the right side of its equation. Without tensor cores: the adjoint after each
// piece, the gradients of the right sides, and the gradients of queries and keys before their division by the
// lengths. On the CPU: the adjoints of a sequence's states, the states of one channel in a chunk, the chunk's
// queries and keys with their gradients, and seven numbers for each of its tokens.
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
