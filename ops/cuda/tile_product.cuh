// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_pipeline.h>
#include <mma.h>

#include <algorithm>
#include <cstdint>

#include "ops/cuda/block.cuh"

// A block computes one tile of a matrix product: kRows x kColumns elements of A B, kDepth of the depth at a
// time, in an order that depends on the depth alone.
namespace tandem::ops::cuda {

// Which elements of an operand are adjacent in memory: those along the depth, or those across it.
enum class Along { kDepth, kAcross };

template <typename E>
struct TileShape {  // float, double: each thread 4 x 4 elements, by its own multiplications
  static constexpr int kRows = 64;
  static constexpr int kColumns = 64;
  static constexpr int kDepth = 16;
};
template <>
struct TileShape<Bf16> {  // tensor cores
  static constexpr int kRows = 128;
  static constexpr int kColumns = 128;
  static constexpr int kDepth = 32;
};

constexpr int kStages = 3;  // tiles of the depth in shared memory: one is used, the others are on their way

// One operand's tile in shared memory: lines of adjacent elements, with a pack of padding between lines.
template <typename E, Along kAlong, int kExtent>
struct OperandTile {
  static constexpr int kDepth = TileShape<E>::kDepth;
  static constexpr int kLines = kAlong == Along::kDepth ? kExtent : kDepth;
  static constexpr int kWidth = kAlong == Along::kDepth ? kDepth : kExtent;
  static constexpr int kStride = kWidth + kPackSize<E>;
  static constexpr int kElements = kLines * kStride;

  // The index of the element (across, depth) in the tile.
  static __device__ int At(int across, int depth) {
    return kAlong == Along::kDepth ? across * kStride + depth : depth * kStride + across;
  }

  // Loads `extent` x `depth` elements from `from` on, whose lines are `stride` apart, and zeros beyond them.
  // kPacked: lines consist of whole packs.
  template <bool kPacked>
  static __device__ void Load(const E* from, int64_t stride, int64_t extent, int64_t depth, E* tile) {
    const int64_t lines = kAlong == Along::kDepth ? extent : depth;
    const int64_t width = kAlong == Along::kDepth ? depth : extent;
    constexpr int kPack = kPacked ? kPackSize<E> : 1;
    constexpr int kPacks = kWidth / kPack;
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < kLines * kPacks; i += kThreads) {
      const int line = i / kPacks;
      const int column = i % kPacks * kPack;
      const bool inside = line < lines && column < width;
      const E* const element = inside ? from + line * stride + column : from;
      if constexpr (kPacked) {
        __pipeline_memcpy_async(tile + line * kStride + column, element, 16, inside ? 0 : 16);
      } else {
        tile[line * kStride + column] = inside ? *element : E{};
      }
    }
  }
};

// The sums of a tile, for float and double: thread t has rows t / 16 + 16 i and columns t % 16 + 16 j.
template <typename E, typename TileA, typename TileB>
class TileSums {
 public:
  __device__ void Add(const E* a, const E* b) {
    const int row = static_cast<int>(threadIdx.x) / 16;
    const int column = static_cast<int>(threadIdx.x) % 16;
#pragma unroll
    for (int k = 0; k < TileShape<E>::kDepth; ++k) {
      E left[4];
      E right[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        left[i] = a[TileA::At(row + 16 * i, k)];
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        right[j] = b[TileB::At(column + 16 * j, k)];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sums_[i][j] += left[i] * right[j];
        }
      }
    }
  }

  // Calls visit(row, column, sum) for every element. May overwrite the shared memory of the operands.
  template <typename Visit>
  __device__ void ForEach(unsigned char*, const Visit& visit) const {
    const int row = static_cast<int>(threadIdx.x) / 16;
    const int column = static_cast<int>(threadIdx.x) % 16;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        visit(row + 16 * i, column + 16 * j, sums_[i][j]);
      }
    }
  }

 private:
  E sums_[4][4] = {};
};

// The sums of a tile, for bfloat16: a warp has 64 x 32 elements, in fragments of 16 x 16.
template <typename TileA, typename TileB>
class TileSums<Bf16, TileA, TileB> {
 public:
  __device__ TileSums() {
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
#pragma unroll
      for (int j = 0; j < kBeside; ++j) {
        nvcuda::wmma::fill_fragment(sums_[i][j], 0.0F);
      }
    }
  }

  __device__ void Add(const Bf16* a, const Bf16* b) {
    const auto* const left = reinterpret_cast<const __nv_bfloat16*>(a);
    const auto* const right = reinterpret_cast<const __nv_bfloat16*>(b);
#pragma unroll
    for (int k = 0; k < TileShape<Bf16>::kDepth; k += 16) {
      A a_part[kDown];
      B b_part[kBeside];
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
        nvcuda::wmma::load_matrix_sync(a_part[i], left + TileA::At(Row() + 16 * i, k), TileA::kStride);
      }
#pragma unroll
      for (int j = 0; j < kBeside; ++j) {
        nvcuda::wmma::load_matrix_sync(b_part[j], right + TileB::At(Column() + 16 * j, k), TileB::kStride);
      }
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
#pragma unroll
        for (int j = 0; j < kBeside; ++j) {
          nvcuda::wmma::mma_sync(sums_[i][j], a_part[i], b_part[j], sums_[i][j]);
        }
      }
    }
  }

  template <typename Visit>
  __device__ void ForEach(unsigned char* shared, const Visit& visit) const {
    float* const part = reinterpret_cast<float*>(shared) + threadIdx.x / 32 * 256;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
#pragma unroll
      for (int j = 0; j < kBeside; ++j) {
        nvcuda::wmma::store_matrix_sync(part, sums_[i][j], 16, nvcuda::wmma::mem_row_major);
        __syncwarp();
#pragma unroll 1
        for (int element = lane; element < 256; element += 32) {
          visit(Row() + 16 * i + element / 16, Column() + 16 * j + element % 16, part[element]);
        }
        __syncwarp();
      }
    }
  }

 private:
  static constexpr int kDown = 4;
  static constexpr int kBeside = 2;
  using RowMajor = nvcuda::wmma::row_major;
  using ColumnMajor = nvcuda::wmma::col_major;
  // Lines along the depth are rows of A and columns of B.
  using A = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __nv_bfloat16,
                                   std::conditional_t<TileA::kWidth == TileA::kDepth, RowMajor, ColumnMajor>>;
  using B = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __nv_bfloat16,
                                   std::conditional_t<TileB::kWidth == TileB::kDepth, ColumnMajor, RowMajor>>;

  static __device__ int Row() { return static_cast<int>(threadIdx.x) / 32 / 4 * 64; }
  static __device__ int Column() { return static_cast<int>(threadIdx.x) / 32 % 4 * 32; }

  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sums_[kDown][kBeside];
};

// The operands of a tile. rows, columns, depth: the numbers that are left from `a` and `b` on.
template <typename E>
struct TileOperands {
  const E* a = nullptr;
  int64_t a_stride = 0;
  const E* b = nullptr;
  int64_t b_stride = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
};

template <typename E, Along kA, Along kB>
struct TileProduct {
  using Shape = TileShape<E>;
  using TileA = OperandTile<E, kA, Shape::kRows>;
  using TileB = OperandTile<E, kB, Shape::kColumns>;
  static constexpr int kStageElements = TileA::kElements + TileB::kElements;
  static constexpr int kSharedBytes = kStages * kStageElements * static_cast<int>(sizeof(E));

  // Calls visit(row, column, sum) for each element of the tile that is inside the matrix. All kThreads
  // threads of the block call this.
  template <bool kPacked, typename Visit>
  static __device__ void Run(const TileOperands<E>& in, unsigned char* shared, const Visit& visit) {
    E* const stages = reinterpret_cast<E*>(shared);
    const int64_t steps = (in.depth + Shape::kDepth - 1) / Shape::kDepth;
    const auto load = [&](int64_t step) {
      if (step < steps) {
        E* const stage = stages + step % kStages * kStageElements;
        const int64_t first = step * Shape::kDepth;
        const int64_t left = in.depth - first;
        TileA::template Load<kPacked>(in.a + first * (kA == Along::kDepth ? 1 : in.a_stride), in.a_stride,
                                      in.rows, left, stage);
        TileB::template Load<kPacked>(in.b + first * (kB == Along::kDepth ? 1 : in.b_stride), in.b_stride,
                                      in.columns, left, stage + TileA::kElements);
      }
      __pipeline_commit();
    };
    TileSums<E, TileA, TileB> sums;
    for (int step = 0; step < kStages - 1; ++step) {
      load(step);
    }
    for (int64_t step = 0; step < steps; ++step) {
      __pipeline_wait_prior(kStages - 2);
      __syncthreads();  // this step's tiles are there, and no thread reads the last step's
      load(step + kStages - 1);
      const E* const stage = stages + step % kStages * kStageElements;
      sums.Add(stage, stage + TileA::kElements);
    }
    __pipeline_wait_prior(0);
    __syncthreads();
    sums.ForEach(shared, [&](int row, int column, Arithmetic<E> sum) {
      if (row < in.rows && column < in.columns) {
        visit(row, column, sum);
      }
    });
  }
};

}  // namespace tandem::ops::cuda
