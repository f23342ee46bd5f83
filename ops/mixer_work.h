// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/device_kind.h"
#include "ops/scan_shape.h"

namespace tandem::ops {

// The work memory of Mamba-2 mixers' operations, in bytes. This is plain arithmetic. `element_bytes` is the
// size of the elements; sums of bfloat16 are float.

// On a GPU a scan of either shape (scan_shape.h, delta_shape.h) is cut into pieces of at most this many
// tokens. Each chunk begins with a new piece.
inline constexpr int64_t kScanPiece = 64;
template <typename Shape>
constexpr int64_t PiecesOfChunk(const Shape& shape) {
  return (std::min(shape.chunk, shape.length) + kScanPiece - 1) / kScanPiece;
}
template <typename Shape>
constexpr int64_t PiecesOfSequence(const Shape& shape) {
  return shape.chunks() * PiecesOfChunk(shape);
}
template <typename Shape>
constexpr int64_t Pieces(const Shape& shape) {
  return shape.sequences * PiecesOfSequence(shape);
}

// On a GPU, the number of tokens of a sequence over which one block sums the gradients of a convolution's
// weights.
inline constexpr int64_t kConvTokens = 64;
constexpr int64_t ConvBlocks(int64_t sequences, int64_t length) {
  return sequences * ((length + kConvTokens - 1) / kConvTokens);
}
// On a GPU, the largest number of blocks that each sum a part of a gated norm's weight gradient.
inline constexpr int64_t kGatedRows = 264;

constexpr int64_t MixerSumBytes(int64_t element_bytes) { return std::max<int64_t>(4, element_bytes); }

// On a GPU: the gradients of weight and bias, for each block and in total.
constexpr int64_t CausalConvBackwardWorkBytes(DeviceKind device, int64_t sequences, int64_t length,
                                              int64_t channels, int64_t width, int64_t element_bytes) {
  return device == DeviceKind::kCpu
             ? 0
             : (ConvBlocks(sequences, length) + 1) * channels * (width + 1) * MixerSumBytes(element_bytes);
}

constexpr int64_t GatedNormBackwardWorkBytes(DeviceKind device, int64_t rows, int64_t columns,
                                             int64_t element_bytes) {
  return device == DeviceKind::kCpu ? 0 : std::min(rows, kGatedRows) * columns * MixerSumBytes(element_bytes);
}

// Whether a GPU computes the scan on tensor cores (cuda/tensor_scan.h).
constexpr bool ScansOnTensorCores(const ScanShape& shape, int64_t element_bytes) {
  return element_bytes == 2 && shape.head_dim == 64 && (shape.state == 64 || shape.state == 128);
}

// On a GPU: two numbers for each token and head, and without tensor cores the states before each piece. On
// the CPU: the state of one head.
constexpr int64_t StateScanWorkBytes(DeviceKind device, const ScanShape& shape, int64_t element_bytes) {
  const int64_t steps = 2 * shape.tokens() * shape.heads;
  const int64_t states = Pieces(shape) * shape.inner() * shape.state;
  const int64_t numbers = device == DeviceKind::kCpu                 ? shape.head_dim * shape.state
                          : ScansOnTensorCores(shape, element_bytes) ? steps
                                                                     : steps + states;
  return numbers * MixerSumBytes(element_bytes);
}

// On a GPU: two numbers for each token and head, the states before each piece, the adjoints of the states
// after it, three sums for each head in each piece, and the gradients of B and C. With tensor cores, states
// and adjoints are bfloat16, and the gradients of B and C need no work memory. On the CPU: the adjoints of a
// sequence's states, the states of one channel in a chunk, the gradients of the chunk's B and C, and four
// numbers a token of it.
constexpr int64_t StateScanBackwardWorkBytes(DeviceKind device, const ScanShape& shape,
                                             int64_t element_bytes) {
  const int64_t sum_bytes = MixerSumBytes(element_bytes);
  if (device == DeviceKind::kCpu) {
    return (shape.inner() * shape.state + (3 * shape.chunk + 1) * shape.state + 4 * shape.chunk) * sum_bytes;
  }
  const int64_t states = 2 * Pieces(shape) * shape.inner() * shape.state;
  const int64_t sums = 2 * shape.tokens() * shape.heads + 3 * Pieces(shape) * shape.heads;
  return ScansOnTensorCores(shape, element_bytes)
             ? states * element_bytes + sums * sum_bytes
             : (states + sums + 2 * shape.tokens() * shape.groups * shape.state) * sum_bytes;
}

}  // namespace tandem::ops
