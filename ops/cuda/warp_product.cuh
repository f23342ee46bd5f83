// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_pipeline.h>

#include <cstdint>

#include "ops/cuda/elements.cuh"
#include "ops/cuda/warp.cuh"

// Products of small matrices of bfloat16 by one warp on tensor cores (PTX ISA, mma.m16n8k16 and ldmatrix).
namespace tandem::ops::cuda {

// The part of [16, 8] sums that a lane has: rows RowOfLane() and RowOfLane() + 8, columns ColumnOfLane() and
// ColumnOfLane() + 1.
using LaneSums = float[4];
__device__ inline int RowOfLane() { return LaneOf() / 4; }
__device__ inline int ColumnOfLane() { return LaneOf() % 4 * 2; }

// A lane's elements of a [16, 16] operand. In a right operand, pairs 0 and 1 are of columns 0 to 7, and pairs
// 2 and 3 of the others.
struct Fragment {
  unsigned pairs[4];
};

__device__ inline unsigned PairOf(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const unsigned*>(&pair);
}
__device__ inline float2 FloatsOf(unsigned pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000)};
}

template <bool kTransposed>
__device__ Fragment LoadFragment(const Bf16* lane_row) {
  Fragment f;
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(lane_row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.pairs[0]), "=r"(f.pairs[1]), "=r"(f.pairs[2]), "=r"(f.pairs[3])
                 : "r"(address));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.pairs[0]), "=r"(f.pairs[1]), "=r"(f.pairs[2]), "=r"(f.pairs[3])
                 : "r"(address));
  }
  return f;
}

// A [rows, columns] matrix in shared memory. Rows have 16 bytes of padding, so that eight successive rows are
// in different banks.
template <int kRows, int kColumns>
struct SharedMatrix {
  static constexpr int kStride = kColumns + 8;
  Bf16 at[kRows][kStride];

  // The left operand of rows [row, row + 16), depth [k, k + 16), of this matrix, or of its transpose.
  __device__ Fragment Left(int row, int k) const {
    return LoadFragment<false>(&at[row + LaneOf() % 16][k + LaneOf() / 16 * 8]);
  }
  __device__ Fragment LeftOfTranspose(int row, int k) const {
    return LoadFragment<true>(&at[k + LaneOf() / 16 * 8 + LaneOf() % 8][row + LaneOf() / 8 % 2 * 8]);
  }
  // The right operand of depth [k, k + 16), columns [column, column + 16).
  __device__ Fragment Right(int k, int column) const {
    return LoadFragment<true>(&at[k + LaneOf() / 8 % 2 * 8 + LaneOf() % 8][column + LaneOf() / 16 * 8]);
  }
  __device__ Fragment RightOfTranspose(int k, int column) const {
    return LoadFragment<false>(&at[column + LaneOf() / 16 * 8 + LaneOf() % 8][k + LaneOf() / 8 % 2 * 8]);
  }
};

// Starts to copy `rows` rows, row_stride apart, into the first rows of a matrix; the others become zeros.
template <int kThreadsOfBlock, int kRows, int kColumns>
__device__ void StartCopy(const Bf16* from, int64_t row_stride, int rows, SharedMatrix<kRows, kColumns>& to) {
  constexpr int kPacks = kColumns / 8;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kPacks; i += kThreadsOfBlock) {
    const int row = i / kPacks;
    const int column = i % kPacks * 8;
    const bool inside = row < rows;
    __pipeline_memcpy_async(&to.at[row][column], inside ? from + row * row_stride + column : from, 16,
                            inside ? 0 : 16);
  }
}

// sums += left * right. The first form computes 8 columns, the second 16.
__device__ inline void AddProduct(const Fragment& left, unsigned right0, unsigned right1, LaneSums& sums) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left.pairs[0]), "r"(left.pairs[1]), "r"(left.pairs[2]), "r"(left.pairs[3]), "r"(right0),
        "r"(right1));
}
__device__ inline void AddProduct(const Fragment& left, const Fragment& right, LaneSums& first,
                                  LaneSums& second) {
  AddProduct(left, right.pairs[0], right.pairs[1], first);
  AddProduct(left, right.pairs[2], right.pairs[3], second);
}

// A left operand whose column k is multiplied by factors[k], as the sum of two bfloat16, which is as exact as
// float.
struct ScaledFragment {
  __device__ ScaledFragment(const Fragment& plain, const float* factors) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int k = i / 2 * 8 + ColumnOfLane();
      const float2 pair = FloatsOf(plain.pairs[i]);
      const float first = pair.x * factors[k];
      const float second = pair.y * factors[k + 1];
      high.pairs[i] = PairOf(first, second);
      const float2 rounded = FloatsOf(high.pairs[i]);
      low.pairs[i] = PairOf(first - rounded.x, second - rounded.y);
    }
  }

  Fragment high;
  Fragment low;
};
__device__ inline void AddProduct(const ScaledFragment& left, const Fragment& right, LaneSums& first,
                                  LaneSums& second) {
  AddProduct(left.high, right, first, second);
  AddProduct(left.low, right, first, second);
}

// Rounds [16, 16] sums to a left operand.
__device__ inline Fragment AsLeft(const LaneSums& first, const LaneSums& second) {
  return {{PairOf(first[0], first[1]), PairOf(first[2], first[3]), PairOf(second[0], second[1]),
           PairOf(second[2], second[3])}};
}

// The sum over the four lanes that have the same rows.
__device__ inline float RowSum(float value) {
  value += __shfl_xor_sync(kEveryLane, value, 1);
  return value + __shfl_xor_sync(kEveryLane, value, 2);
}
// The sum over the eight lanes that have the same columns.
__device__ inline float ColumnSum(float value) {
  value += __shfl_xor_sync(kEveryLane, value, 4);
  value += __shfl_xor_sync(kEveryLane, value, 8);
  return value + __shfl_xor_sync(kEveryLane, value, 16);
}

}  // namespace tandem::ops::cuda
