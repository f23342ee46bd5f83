// SPDX-License-Identifier: Apache-2.0
// Norms: loops over rows, in packs of 16 bytes where rows consist of such.
#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"
#include "ops/row_work.h"

namespace tandem::ops::cuda {
namespace {

template <int N, typename E, typename T = Arithmetic<E>>
__global__ void RmsNormRow(RmsNormArgs<E> args, T epsilon) {
  const int64_t columns = args.columns;
  const E* const weight = args.weight;
  const E* const x = args.x + blockIdx.x * columns;
  E* const y = args.y + blockIdx.x * columns;
  T squares = 0;
  for (int64_t i = threadIdx.x; i < columns / N; i += kThreads) {
    const Pack<E, N> value = PackAt<E, N>(x, i);
#pragma unroll
    for (int k = 0; k < N; ++k) squares += Widen(value.e[k]) * Widen(value.e[k]);
  }
  const T r = 1 / sqrt(BlockSum(squares) / static_cast<T>(columns) + epsilon);
  for (int64_t i = threadIdx.x; i < columns / N; i += kThreads) {
    Pack<E, N> value = PackAt<E, N>(x, i);
    const Pack<E, N> w = PackAt<E, N>(weight, i);
#pragma unroll
    for (int k = 0; k < N; ++k) Narrow(Widen(value.e[k]) * r * Widen(w.e[k]), value.e[k]);
    SetPack(y, i, value);
  }
}

// Both sums over the block at once.
template <typename T>
__device__ void BlockSums(T& a, T& b) {
  __shared__ T shared[2][kWarps];
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    a += __shfl_xor_sync(0xFFFFFFFF, a, lanes);
    b += __shfl_xor_sync(0xFFFFFFFF, b, lanes);
  }
  __syncthreads();  // the last sums' readers
  if (threadIdx.x % 32 == 0) {
    shared[0][threadIdx.x / 32] = a;
    shared[1][threadIdx.x / 32] = b;
  }
  __syncthreads();
  a = shared[0][0];
  b = shared[1][0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) {
    a += shared[0][warp];
    b += shared[1][warp];
  }
}

// With r = 1 / rms(x) and g = grad_y * weight: grad_x = r * (g - x * r^2 * mean(g * x)). A block has every
// gridDim.x-th row, and adds up the weight's gradient of these in shared memory, element k of pack i at
// k * packs + i: neighbouring threads read neighbouring banks.
//
// kHeld: packs of a row that a thread keeps from the sums to the results, all that it has; 0: it reads them
// again.
template <int N, int kHeld, typename E, typename T>
__global__ void __launch_bounds__(kThreads, 4)
    RmsNormBackwardRows(RmsNormBackwardArgs<E> args, T epsilon, T* partial_sums) {
  extern __shared__ __align__(16) unsigned char shared[];
  using P = Pack<E, N>;
  T* const sums = reinterpret_cast<T*>(shared);
  const E* const __restrict__ grad_y = args.grad_y;
  const E* const __restrict__ x = args.x;
  const E* const __restrict__ weight = args.weight;
  const E* const __restrict__ residual = args.residual;
  E* const grad_x = args.grad_x;
  const bool add_x = args.add_x;
  const int64_t columns = args.columns;
  const int64_t packs = columns / N;
  for (int64_t i = threadIdx.x; i < packs; i += kThreads) {
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k * packs + i] = 0;
  }
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const int64_t begin = row * columns;
    T squares = 0;
    T dot = 0;
    const auto add = [&](const P& value, const P& grad, const P& w) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        squares += Widen(value.e[k]) * Widen(value.e[k]);
        dot += Widen(grad.e[k]) * Widen(value.e[k]) * Widen(w.e[k]);
      }
    };
    T r = 0;
    T shrink = 0;
    const auto close_sums = [&] {
      BlockSums(squares, dot);
      r = 1 / sqrt(squares / static_cast<T>(columns) + epsilon);
      shrink = r * r * r * dot / static_cast<T>(columns);
    };
    const auto write = [&](int64_t i, const P& value, const P& grad, const P& beside) {
      const P w = PackAt<E, N>(weight, i);
      P result{};
      if (add_x) result = PackAt<E, N>(grad_x + begin, i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        T gradient = Widen(grad.e[k]) * Widen(w.e[k]) * r - Widen(value.e[k]) * shrink;
        if (residual != nullptr) gradient += Widen(beside.e[k]);
        Narrow(add_x ? Widen(result.e[k]) + gradient : gradient, result.e[k]);
        sums[k * packs + i] += Widen(grad.e[k]) * Widen(value.e[k]) * r;
      }
      SetPack(grad_x + begin, i, result);
    };
    if constexpr (kHeld > 0) {
      P values[kHeld];
      P grads[kHeld];
      P besides[kHeld];
#pragma unroll
      for (int j = 0; j < kHeld; ++j) {
        const int64_t i = threadIdx.x + j * kThreads;
        if (i >= packs) continue;
        values[j] = PackAt<E, N>(x + begin, i);
        grads[j] = PackAt<E, N>(grad_y + begin, i);
        if (residual != nullptr) besides[j] = PackAt<E, N>(residual + begin, i);
      }
#pragma unroll
      for (int j = 0; j < kHeld; ++j) {
        const int64_t i = threadIdx.x + j * kThreads;
        if (i < packs) add(values[j], grads[j], PackAt<E, N>(weight, i));
      }
      close_sums();
#pragma unroll
      for (int j = 0; j < kHeld; ++j) {
        const int64_t i = threadIdx.x + j * kThreads;
        if (i < packs) write(i, values[j], grads[j], besides[j]);
      }
    } else {
      for (int64_t i = threadIdx.x; i < packs; i += kThreads) {
        add(PackAt<E, N>(x + begin, i), PackAt<E, N>(grad_y + begin, i), PackAt<E, N>(weight, i));
      }
      close_sums();
      for (int64_t i = threadIdx.x; i < packs; i += kThreads) {
        P beside{};
        if (residual != nullptr) beside = PackAt<E, N>(residual + begin, i);
        write(i, PackAt<E, N>(x + begin, i), PackAt<E, N>(grad_y + begin, i), beside);
      }
    }
  }
  for (int64_t i = threadIdx.x; i < packs; i += kThreads) {
#pragma unroll
    for (int k = 0; k < N; ++k) partial_sums[blockIdx.x * columns + i * N + k] = sums[k * packs + i];
  }
}

// grad_weight (+)= the rows of partial_sums: a block has 32 columns, a warp every kWarps-th row.
template <typename T>
__global__ void AddPartialSums(const T* partial_sums, int64_t rows, int64_t columns, bool add,
                               T* grad_weight) {
  __shared__ T shared[kWarps][32];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + lane;
  T sum = 0;
  if (column < columns) {
#pragma unroll 8
    for (int64_t row = warp; row < rows; row += kWarps) sum += partial_sums[row * columns + column];
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || column >= columns) return;
  T total = add ? grad_weight[column] : T{0};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += shared[w][lane];
  grad_weight[column] = total;
}

}  // namespace

template <typename E>
int Launch(const RmsNormArgs<E>& args, Stream stream) {
  if (args.rows == 0 || args.columns == 0) return cudaSuccess;
  WithPacks<E>({args.columns}, {args.x, args.weight, args.y}, [&]<int N>(Packed<N>) {
    RmsNormRow<N><<<static_cast<unsigned>(args.rows), kThreads, 0, stream>>>(
        args, static_cast<Arithmetic<E>>(args.epsilon));
  });
  return cudaGetLastError();
}
TANDEM_KERNEL(RmsNormArgs)

template <typename E>
int Launch(const RmsNormBackwardArgs<E>& args, Stream stream) {
  using T = Arithmetic<E>;
  const int64_t columns = args.columns;
  if (columns == 0) return cudaSuccess;
  T* const partial_sums = static_cast<T*>(args.work.begin);
  const int64_t groups = std::min(args.rows, kNormGroups);
  int error = cudaSuccess;
  if (groups > 0) {
    WithPacks<E>(
        {columns}, {args.grad_y, args.x, args.weight, args.residual, args.grad_x}, [&]<int N>(Packed<N>) {
          constexpr int kHeld = 2;
          const bool held = columns / N <= kHeld * kThreads;
          const auto kernel = held ? RmsNormBackwardRows<N, kHeld, E, T> : RmsNormBackwardRows<N, 0, E, T>;
          const auto bytes = static_cast<int>(columns * sizeof(T));
          if (bytes > 48 << 10) {  // more must be asked for
            error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
          }
          kernel<<<static_cast<unsigned>(groups), kThreads, bytes, stream>>>(
              args, static_cast<T>(args.epsilon), partial_sums);
        });
  }
  AddPartialSums<<<static_cast<unsigned>((columns + 31) / 32), kThreads, 0, stream>>>(
      partial_sums, groups, columns, args.add_weight, args.grad_weight);
  const int launched = cudaGetLastError();
  return error != cudaSuccess ? error : launched;
}
TANDEM_KERNEL(RmsNormBackwardArgs)

}  // namespace tandem::ops::cuda
