// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cpu/simd.h"

// Products of small matrices in tiles that stay in registers. Only for files that CMake compiles once for
// each instruction set (simd.h).
namespace tandem::ops::cpu::TANDEM_ISA {

inline int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// The number of columns of B in one tile.
template <typename T>
inline constexpr int64_t kPair = 2 * Lanes<T>::kCount;

// The number of rows of a tile that fits into the registers, with two vectors of B and one element of A:
// there are 32 registers with AVX-512, otherwise 16.
inline constexpr int kTileRows = kVectorBytes == 64 ? 8 : 6;
inline constexpr int kFewRows = 4;  // rows of a smaller tile

// The rows and the depth of a product that are finished before the next ones: this part of B's depth, two
// vectors wide, stays in the first-level cache for all these rows, however long the sequence is. The sum of
// an element continues from memory, so its additions keep their order.
inline constexpr int64_t kRowsAtOnce = 64;
inline constexpr int64_t kDepthAtOnce = 128;

// C[R, V vectors] (+)= A[R, depth] * B[depth, V vectors]; A's element (i, k) at a[i * row + k * column].
template <int R, int V, typename T>
inline void Tile(int64_t depth, const T* a, int64_t row, int64_t column, const T* b, int64_t b_stride, T* c,
                 int64_t c_stride, bool add) {
  constexpr int kLanes = Lanes<T>::kCount;
  Vector<T> sum[R][V];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) {
      sum[i][j] = add ? Load(c + i * c_stride + j * kLanes) : Vector<T>{};
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vector<T> right[V];
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) {
      right[j] = Load(b + k * b_stride + j * kLanes);
    }
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const T left = a[i * row + k * column];
#pragma GCC unroll 2
      for (int j = 0; j < V; ++j) {
        sum[i][j] += left * right[j];
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) {
      Store<T>(c + i * c_stride + j * kLanes, sum[i][j]);
    }
  }
}

template <int V, typename T>
inline void Panel(int64_t rows, int64_t depth, const T* a, int64_t row, int64_t column, const T* b,
                  int64_t b_stride, T* c, int64_t c_stride, bool add) {
  int64_t i = 0;
  const auto tiles = [&]<int R>(int64_t end) {
    for (; i + R <= end; i += R) {
      Tile<R, V>(depth, a + i * row, row, column, b, b_stride, c + i * c_stride, c_stride, add);
    }
  };
  // Uses one large tile less if fewer rows then need a tile of their own.
  const int64_t left = rows % kTileRows;
  const bool one_less = (left + kTileRows) % kFewRows < left % kFewRows;
  tiles.template operator()<kTileRows>(rows - (one_less ? kTileRows : 0));
  tiles.template operator()<kFewRows>(rows);
  tiles.template operator()<1>(rows);
}

// C[rows, columns] (+)= A[rows, depth] * B[depth, columns]; columns is a multiple of the vector's lanes. B
// consists of panels of kPair columns, which are b_pair elements apart.
template <typename T>
void Multiply(int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t row, int64_t column,
              const T* b, int64_t b_stride, int64_t b_pair, T* c, int64_t c_stride, bool add) {
  for (int64_t i = 0; i < rows; i += kRowsAtOnce) {
    const int64_t some_rows = Smaller(kRowsAtOnce, rows - i);
    for (int64_t k = 0; k < depth; k += kDepthAtOnce) {
      const int64_t some_depth = Smaller(kDepthAtOnce, depth - k);
      const T* const left = a + i * row + k * column;
      const T* const right = b + k * b_stride;
      T* const out = c + i * c_stride;
      const bool adds = add || k > 0;
      const T* pair = right;
      int64_t j = 0;
      for (; j + kPair<T> <= columns; j += kPair<T>, pair += b_pair) {
        Panel<2>(some_rows, some_depth, left, row, column, pair, b_stride, out + j, c_stride, adds);
      }
      if (j < columns) {
        Panel<1>(some_rows, some_depth, left, row, column, pair, b_stride, out + j, c_stride, adds);
      }
    }
  }
}

}  // namespace tandem::ops::cpu::TANDEM_ISA
