// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/attention_shape.h"
#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"
#include "ops/mixer_work.h"

namespace tandem::ops::cuda {

// A recurrence, computed in pieces of kScanPiece tokens. Within a piece it is a product of small matrices;
// states are passed from piece to piece. A block of kThreads threads computes one head of a piece.
constexpr int kPiece = static_cast<int>(kScanPiece);
constexpr int kTile = 64;                // rows and columns of a tile of a product
constexpr int kDepth = 32;               // depth of the parts of operands that are in shared memory
constexpr int kMicro = 4;                // rows and columns that a thread computes
constexpr int kAcross = kTile / kMicro;  // threads in each direction
static_assert(kAcross * kAcross == kThreads);

// The position of a piece's tokens.
struct Piece {
  template <typename Shape>
  __device__ Piece(const Shape& s, int64_t index) {
    const int64_t of_chunk = PiecesOfChunk(s);
    sequence = index / PiecesOfSequence(s);
    const int64_t piece = index % PiecesOfSequence(s);
    const int64_t chunk = piece / of_chunk;
    begins_chunk = piece % of_chunk == 0;
    chunk_index = sequence * s.chunks() + chunk;
    begin = chunk * s.chunk + piece % of_chunk * kScanPiece;
    int64_t end = min(min(begin + kScanPiece, (chunk + 1) * s.chunk), s.length);
    tokens = static_cast<int>(max(end - begin, int64_t{0}));
    row = sequence * s.length + begin;
  }

  int64_t sequence;
  int64_t chunk_index;  // over all sequences
  int64_t begin;        // position in the sequence
  int64_t row;          // row of its first token
  int tokens;           // 0 if the piece is after the end
  bool begins_chunk;
};

// The first row of a token's document, relative to the piece's first row; negative if the document began
// before the piece.
__device__ inline int64_t StartIn(const DocumentStarts& documents, const Piece& piece, int token) {
  const int64_t* const starts = documents.At(piece.sequence, piece.begin);
  return (starts == nullptr ? 0 : starts[token]) - piece.begin;
}
__device__ inline bool BeganBefore(const DocumentStarts& documents, const Piece& piece, int token) {
  return StartIn(documents, piece, token) < 0;
}

// The decay of states within a piece. With sum_i the sum of the logarithms of decays over the piece's tokens
// up to and including i, L(i, j) = exp(sum_i - sum_j) for j <= i in the document of i, else 0.
template <typename T>
struct PieceDecays {
  // sum_of(t) returns the sum of token t. Ends with a barrier.
  template <typename SumOf>
  __device__ void Read(const DocumentStarts& documents, const Piece& piece, const SumOf& sum_of) {
    const int last = piece.tokens - 1;
    for (int t = static_cast<int>(threadIdx.x); t < piece.tokens; t += kThreads) {
      const int64_t start = StartIn(documents, piece, t);
      sums[t] = sum_of(t);
      starts[t] = static_cast<int>(start < 0 ? -1 : start);
      from_before[t] = start < 0 ? exp(sums[t]) : T{0};
      to_behind[t] = StartIn(documents, piece, last) <= t ? exp(sum_of(last) - sums[t]) : T{0};
    }
    __syncthreads();
  }

  __device__ T L(int64_t i, int64_t j) const {
    return j <= i && starts[i] <= j ? exp(sums[i] - sums[j]) : T{0};
  }

  T sums[kPiece];
  T from_before[kPiece];  // factor of the state before the piece in a token's state
  T to_behind[kPiece];    // factor of what a token adds in the state after the piece
  int starts[kPiece];     // start of the token's document; -1: before the piece
};

// The factor of the state before a piece in the state after it.
template <typename T, typename SumOf>
__device__ T DecayOf(const DocumentStarts& documents, const Piece& piece, const SumOf& sum_of) {
  if (piece.tokens == 0) {
    return 1;
  }
  const int last = piece.tokens - 1;
  return BeganBefore(documents, piece, last) ? exp(sum_of(last)) : T{0};
}

// The part of a product's operands in shared memory.
template <typename T>
struct TileMemory {
  T a[kDepth][kTile];
  T b[kDepth][kTile];
};

// One number for each pair of tokens of a piece.
template <typename T>
struct PieceMatrix {
  T at[kPiece][kPiece + 1];
};

// Multiplies a matrix [rows, depth] and one [depth, columns] with elements a(row, k) and b(k, column), tile
// by tile. Calls out(row, column, elements) with the elements [kMicro, kMicro] of each thread; those outside
// the matrix are zeros. The threads of half a warp have the same rows. Ends with a barrier.
template <typename T, typename A, typename B, typename Out>
__device__ void Product(TileMemory<T>& memory, int64_t rows, int64_t columns, int64_t depth, const A& a,
                        const B& b, const Out& out) {
  const int tx = static_cast<int>(threadIdx.x) % kAcross;
  const int ty = static_cast<int>(threadIdx.x) / kAcross;
  for (int64_t row = 0; row < rows; row += kTile) {
    for (int64_t column = 0; column < columns; column += kTile) {
      T elements[kMicro][kMicro] = {};
      for (int64_t first = 0; first < depth; first += kDepth) {
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < kDepth * kTile; i += kThreads) {
          const int64_t k = first + i / kTile;
          const int64_t at = i % kTile;
          memory.a[i / kTile][at] = k < depth && row + at < rows ? a(row + at, k) : T{0};
          memory.b[i / kTile][at] = k < depth && column + at < columns ? b(k, column + at) : T{0};
        }
        __syncthreads();
        for (int k = 0; k < kDepth; ++k) {
          T of_a[kMicro];
          T of_b[kMicro];
#pragma unroll
          for (int i = 0; i < kMicro; ++i) {
            of_a[i] = memory.a[k][ty * kMicro + i];
            of_b[i] = memory.b[k][tx * kMicro + i];
          }
#pragma unroll
          for (int i = 0; i < kMicro; ++i) {
#pragma unroll
            for (int j = 0; j < kMicro; ++j) {
              elements[i][j] += of_a[i] * of_b[j];
            }
          }
        }
      }
      out(row + ty * kMicro, column + tx * kMicro, elements);
    }
  }
  __syncthreads();
}

// Calls visit(row, column, element) for each element of a thread that is inside the matrix.
template <typename T, typename Visit>
__device__ void EachInside(int64_t row, int64_t column, int64_t rows, int64_t columns,
                           const T (&elements)[kMicro][kMicro], const Visit& visit) {
#pragma unroll
  for (int i = 0; i < kMicro; ++i) {
#pragma unroll
    for (int j = 0; j < kMicro; ++j) {
      if (row + i < rows && column + j < columns) {
        visit(row + i, column + j, elements[i][j]);
      }
    }
  }
}

// sums[row + i] += the sum of sums_of[i] over the threads that have the same rows. No other threads may add
// to these rows.
template <typename T>
__device__ void AddRowSums(int64_t row, int64_t rows, T (&sums_of)[kMicro], T* sums) {
#pragma unroll
  for (int i = 0; i < kMicro; ++i) {
    for (int lanes = kAcross / 2; lanes > 0; lanes /= 2) {
      sums_of[i] += __shfl_xor_sync(kEveryLane, sums_of[i], lanes);
    }
    if (threadIdx.x % kAcross == 0 && row + i < rows) {
      sums[row + i] += sums_of[i];
    }
  }
}

// Launches `blocks` blocks of a kernel that has a Memory in dynamic shared memory. An error is left for
// cudaGetLastError.
template <typename Memory, typename... Parameters, typename... Arguments>
void LaunchWith(void (*kernel)(Parameters...), int64_t blocks, int threads, Stream stream,
                const Arguments&... arguments) {
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Memory)) ==
      cudaSuccess) {
    kernel<<<static_cast<unsigned>(blocks), threads, sizeof(Memory), stream>>>(arguments...);
  }
}

}  // namespace tandem::ops::cuda
