// SPDX-License-Identifier: Apache-2.0
// A matrix product for each expert in one launch. The kernel reads on the GPU where each expert's rows are.
#include <cuda_runtime.h>

#include <type_traits>
#include <utility>

#include "ops/cuda/hopper_products.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/tile_product.cuh"
#include "ops/cuda/warp.cuh"
#include "ops/grouped_linear.h"

namespace tandem::ops::cuda {
namespace {

// The rows of the block's tile: `rows` from `row` on, of one expert. expert -1: the block has no tile.
struct RowTile {
  int64_t expert = -1;
  int64_t row = 0;
  int64_t rows = 0;
};

// Finds the `number`-th tile of kRows rows; each expert begins a new one. The first warp searches.
template <int kRows>
__device__ RowTile FindTile(const int64_t* begins, int64_t experts, int64_t number) {
  __shared__ RowTile found;
  if (threadIdx.x < 32) {
    const int lane = static_cast<int>(threadIdx.x);
    if (lane == 0) {
      found = RowTile();
    }
    __syncwarp();
    int64_t before = 0;  // tiles of the experts so far
    for (int64_t first = 0; first < experts && before <= number; first += 32) {
      const int64_t expert = first + lane;
      const int64_t begin = expert < experts ? begins[expert] : 0;
      const int64_t end = expert < experts ? begins[expert + 1] : 0;
      const int64_t tiles = (end - begin + kRows - 1) / kRows;
      const int64_t with = InclusiveWarpSum(tiles);
      const int64_t own = number - (before + with - tiles);  // the number among the expert's tiles
      if (own >= 0 && own < tiles) {
        found = {expert, begin + own * kRows, end - begin - own * kRows};
      }
      before += __shfl_sync(kEveryLane, with, 31);
    }
  }
  __syncthreads();
  return found;
}

__host__ __device__ unsigned Tiles(int64_t elements, int64_t of_a_tile) {
  return static_cast<unsigned>((elements + of_a_tile - 1) / of_a_tile);
}

// y = x W_e for the rows of each expert. kB: the layout of W_e, [outputs, inputs] or [inputs, outputs]. The
// grid has one dim, because the others allow only 65,535 blocks; tiles of the same rows are adjacent.
template <typename E, Along kB, bool kPacked>
__global__ void __launch_bounds__(kThreads) RowsProduct(GroupedLinearArgs<E> args) {
  extern __shared__ __align__(128) unsigned char shared[];
  using Product = TileProduct<E, Along::kDepth, kB>;
  const int64_t depth = args.inputs;
  const int64_t columns = args.outputs;
  const unsigned column_tiles = Tiles(columns, Product::Shape::kColumns);
  const RowTile tile = FindTile<Product::Shape::kRows>(args.begins, args.experts, blockIdx.x / column_tiles);
  if (tile.expert < 0) {
    return;
  }
  const int64_t column = static_cast<int64_t>(blockIdx.x % column_tiles) * Product::Shape::kColumns;
  const E* const weight = args.weight + tile.expert * depth * columns;
  E* const out = args.y + tile.row * columns + column;
  Product::template Run<kPacked>(
      {.a = args.x + tile.row * depth,
       .a_stride = depth,
       .b = weight + column * (kB == Along::kDepth ? depth : 1),
       .b_stride = kB == Along::kDepth ? depth : columns,
       .rows = tile.rows,
       .columns = columns - column,
       .depth = depth},
      shared, [&](int row, int beside, Arithmetic<E> sum) { Narrow(sum, out[row * columns + beside]); });
}

// sums_e (+)= grad_y^T x over the rows of expert blockIdx.z. [outputs, inputs].
template <typename E, typename G, bool kPacked>
__global__ void __launch_bounds__(kThreads) WeightProduct(GroupedLinearBackwardWeightArgs<E> args, G* sums) {
  extern __shared__ __align__(128) unsigned char shared[];
  using Product = TileProduct<E, Along::kAcross, Along::kAcross>;
  const int64_t begin = args.begins[blockIdx.z];
  const int64_t rows = args.begins[blockIdx.z + 1] - begin;
  const bool add = args.add;
  if (rows == 0 && add) {
    return;
  }
  const int64_t inputs = args.inputs;
  const int64_t outputs = args.outputs;
  const int64_t output = static_cast<int64_t>(blockIdx.y) * Product::Shape::kRows;
  const int64_t input = static_cast<int64_t>(blockIdx.x) * Product::Shape::kColumns;
  G* const out = sums + (blockIdx.z * outputs + output) * inputs + input;
  Product::template Run<kPacked>({.a = args.grad_y + begin * outputs + output,
                                  .a_stride = outputs,
                                  .b = args.x + begin * inputs + input,
                                  .b_stride = inputs,
                                  .rows = outputs - output,
                                  .columns = inputs - input,
                                  .depth = rows},
                                 shared, [&](int row, int beside, Arithmetic<E> sum) {
                                   G& to = out[row * inputs + beside];
                                   Narrow(add ? sum + Widen(to) : sum, to);
                                 });
}

// Whether lines of so many elements in these matrices consist of whole packs.
template <typename E>
bool IsPacked(std::initializer_list<int64_t> lines, std::initializer_list<const void*> matrices) {
  bool packed = false;
  WithPacks<E>(lines, matrices, [&]<int N>(Packed<N>) { packed = N > 1; });
  return packed;
}

template <typename Kernel, typename... Args>
int Start(Kernel kernel, dim3 grid, int shared_bytes, Stream stream, const Args&... args) {
  int error = cudaSuccess;
  if (shared_bytes > 48 << 10) {  // more than the default must be requested
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  }
  kernel<<<grid, kThreads, shared_bytes, stream>>>(args...);
  const int launched = cudaGetLastError();
  return error != cudaSuccess ? error : launched;
}

template <typename E, Along kB>
int MultiplyRows(const GroupedLinearArgs<E>& args, Stream stream) {
  if (args.rows == 0 || args.outputs == 0) {
    return cudaSuccess;
  }
  using Product = TileProduct<E, Along::kDepth, kB>;
  // The last tile of each expert may not be full.
  const unsigned row_tiles = Tiles(args.rows, Product::Shape::kRows) + static_cast<unsigned>(args.experts);
  const dim3 grid(row_tiles * Tiles(args.outputs, Product::Shape::kColumns));
  const int64_t line = kB == Along::kDepth ? args.inputs : args.outputs;
  const bool packed = IsPacked<E>({args.inputs, line}, {args.x, args.weight});
  const auto kernel = packed ? RowsProduct<E, kB, true> : RowsProduct<E, kB, false>;
  return Start(kernel, grid, Product::kSharedBytes, stream, args);
}

// G: E, or Arithmetic<E>.
template <typename E, typename G>
int MultiplyWeights(const GroupedLinearBackwardWeightArgs<E>& args, G* sums, Stream stream) {
  if (args.inputs == 0 || args.outputs == 0 || args.experts == 0) {
    return cudaSuccess;
  }
  using Product = TileProduct<E, Along::kAcross, Along::kAcross>;
  const dim3 grid(Tiles(args.inputs, Product::Shape::kColumns), Tiles(args.outputs, Product::Shape::kRows),
                  static_cast<unsigned>(args.experts));
  const bool packed = IsPacked<E>({args.inputs, args.outputs}, {args.grad_y, args.x});
  const auto kernel = packed ? WeightProduct<E, G, true> : WeightProduct<E, G, false>;
  return Start(kernel, grid, Product::kSharedBytes, stream, args, sums);
}

}  // namespace

template <typename E>
int Launch(const GroupedLinearArgs<E>& args, Stream stream) {
  if constexpr (std::is_same_v<E, Bf16>) {
    if (IsHopperProduct(args)) {
      return LaunchHopper(args, stream);
    }
  }
  return MultiplyRows<E, Along::kDepth>(args, stream);
}
TANDEM_KERNEL(GroupedLinearArgs)

template <typename E>
int Launch(const GroupedLinearBackwardInputArgs<E>& args, Stream stream) {
  if constexpr (std::is_same_v<E, Bf16>) {
    if (IsHopperProduct(args)) {
      return LaunchHopper(args, stream);
    }
  }
  GroupedLinearArgs<E> transposed{args, args.grad_y, args.weight, args.grad_x};
  std::swap(transposed.inputs, transposed.outputs);
  return MultiplyRows<E, Along::kAcross>(transposed, stream);
}
TANDEM_KERNEL(GroupedLinearBackwardInputArgs)

template <typename E>
int Launch(const GroupedLinearBackwardWeightArgs<E>& args, Stream stream) {
  if constexpr (std::is_same_v<E, Bf16>) {
    if (IsHopperProduct(args)) {
      return LaunchHopper(args, stream);
    }
  }
  return args.rounded != nullptr ? MultiplyWeights(args, args.rounded, stream)
                                 : MultiplyWeights(args, args.grad_weight, stream);
}
TANDEM_KERNEL(GroupedLinearBackwardWeightArgs)

}  // namespace tandem::ops::cuda
