// SPDX-License-Identifier: Apache-2.0
// Norms, rotation, activation: loops over rows, in packs of 16 bytes where rows consist of such.
#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"
#include "ops/row_work.h"

namespace tandem::ops::cuda {
namespace {

template <typename E, int N, typename T>
__global__ void RmsNormRow(const E* x, const E* weight, T epsilon, int64_t columns, E* y) {
  x += blockIdx.x * columns;
  y += blockIdx.x * columns;
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
template <typename E, int N, int kHeld, typename T>
__global__ void __launch_bounds__(kThreads, 4)
    RmsNormBackwardRows(const E* __restrict__ grad_y, const E* __restrict__ x, const E* __restrict__ weight,
                        T epsilon, int64_t rows, int64_t columns, const E* __restrict__ residual, bool add_x,
                        E* grad_x, T* __restrict__ partial_sums) {
  extern __shared__ __align__(16) unsigned char shared[];
  using P = Pack<E, N>;
  T* const sums = reinterpret_cast<T*>(shared);
  const int64_t packs = columns / N;
  for (int64_t i = threadIdx.x; i < packs; i += kThreads) {
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k * packs + i] = 0;
  }
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
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

template <typename E, int N, typename T>
__global__ void RopeRow(const T* cosines, const T* sines, T sign, int64_t length, int heads, int half,
                        int64_t row_stride, E* x) {
  const int packs = half / N;
  const int64_t position = blockIdx.x % length * half;
  x += blockIdx.x * row_stride;
  for (int index = static_cast<int>(threadIdx.x); index < heads * packs; index += kThreads) {
    const int i = index % packs;
    E* const first = x + index / packs * 2 * half;
    E* const second = first + half;
    Pack<E, N> a = PackAt<E, N>(first, i);
    Pack<E, N> b = PackAt<E, N>(second, i);
    const Pack<T, N> c = PackAt<T, N>(cosines + position, i);
    const Pack<T, N> s = PackAt<T, N>(sines + position, i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const T u = Widen(a.e[k]);
      const T v = Widen(b.e[k]);
      Narrow(u * c.e[k] - v * (s.e[k] * sign), a.e[k]);
      Narrow(v * c.e[k] + u * (s.e[k] * sign), b.e[k]);
    }
    SetPack(first, i, a);
    SetPack(second, i, b);
  }
}

// A block has kThreads packs of one row; blocks_a_row of them are a row.
template <typename E, int N>
__global__ void SwiGluPacks(const E* gate_up, int64_t inner, unsigned blocks_a_row, E* activated) {
  using T = Arithmetic<E>;
  const int64_t row = blockIdx.x / blocks_a_row;
  const int64_t i = static_cast<int64_t>(blockIdx.x % blocks_a_row) * kThreads + threadIdx.x;
  if (i >= inner / N) return;
  gate_up += row * 2 * inner;
  Pack<E, N> gate = PackAt<E, N>(gate_up, i);
  const Pack<E, N> up = PackAt<E, N>(gate_up + inner, i);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const T g = Widen(gate.e[k]);
    Narrow(g / (1 + exp(-g)) * Widen(up.e[k]), gate.e[k]);
  }
  SetPack(activated + row * inner, i, gate);
}

template <typename E, int N>
__global__ void SwiGluBackwardPacks(const E* gate_up, const E* grad_activated, int64_t inner,
                                    unsigned blocks_a_row, E* grad_gate_up, E* activated) {
  using T = Arithmetic<E>;
  const int64_t row = blockIdx.x / blocks_a_row;
  const int64_t i = static_cast<int64_t>(blockIdx.x % blocks_a_row) * kThreads + threadIdx.x;
  if (i >= inner / N) return;
  gate_up += row * 2 * inner;
  grad_gate_up += row * 2 * inner;
  Pack<E, N> gate = PackAt<E, N>(gate_up, i);
  Pack<E, N> up = PackAt<E, N>(gate_up + inner, i);
  Pack<E, N> grads = PackAt<E, N>(grad_activated + row * inner, i);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const T g = Widen(gate.e[k]);
    const T u = Widen(up.e[k]);
    const T grad = Widen(grads.e[k]);
    const T sigmoid = 1 / (1 + exp(-g));
    const T silu = g * sigmoid;
    Narrow(grad * u * (sigmoid + silu * (1 - sigmoid)), gate.e[k]);
    Narrow(grad * silu, up.e[k]);
    Narrow(silu * u, grads.e[k]);
  }
  SetPack(grad_gate_up, i, gate);
  SetPack(grad_gate_up + inner, i, up);
  SetPack(activated + row * inner, i, grads);
}

unsigned BlocksOfRow(int64_t packs) { return static_cast<unsigned>((packs + kThreads - 1) / kThreads); }

}  // namespace

template <typename E>
int RmsNorm(const E* x, const E* weight, double epsilon, int64_t rows, int64_t columns, E* y, Stream stream) {
  if (rows == 0 || columns == 0) return cudaSuccess;
  WithPacks<E>({columns}, {x, weight, y}, [&]<int N>(Packed<N>) {
    RmsNormRow<E, N><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
        x, weight, static_cast<Arithmetic<E>>(epsilon), columns, y);
  });
  return cudaGetLastError();
}

template <typename E>
int RmsNormBackward(const E* grad_y, const E* x, const E* weight, double epsilon, int64_t rows,
                    int64_t columns, const E* residual, bool add_x, E* grad_x, bool add_weight,
                    Arithmetic<E>* grad_weight, Arithmetic<E>* partial_sums, Stream stream) {
  if (columns == 0) return cudaSuccess;
  using T = Arithmetic<E>;
  const int64_t groups = std::min(rows, kNormGroups);
  int error = cudaSuccess;
  if (groups > 0) {
    WithPacks<E>({columns}, {grad_y, x, weight, residual, grad_x}, [&]<int N>(Packed<N>) {
      constexpr int kHeld = 2;
      const bool held = columns / N <= kHeld * kThreads;
      const auto kernel = held ? RmsNormBackwardRows<E, N, kHeld, T> : RmsNormBackwardRows<E, N, 0, T>;
      const auto bytes = static_cast<int>(columns * sizeof(T));
      if (bytes > 48 << 10) {  // more must be asked for
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
      }
      kernel<<<static_cast<unsigned>(groups), kThreads, bytes, stream>>>(
          grad_y, x, weight, static_cast<T>(epsilon), rows, columns, residual, add_x, grad_x, partial_sums);
    });
  }
  AddPartialSums<<<static_cast<unsigned>((columns + 31) / 32), kThreads, 0, stream>>>(
      partial_sums, groups, columns, add_weight, grad_weight);
  const int launched = cudaGetLastError();
  return error != cudaSuccess ? error : launched;
}

template <typename E>
int Rope(const Arithmetic<E>* cosines, const Arithmetic<E>* sines, int sign, int64_t rows, int64_t length,
         int64_t heads, int64_t head_dim, int64_t row_stride, E* x, Stream stream) {
  if (rows == 0 || heads == 0) return cudaSuccess;
  WithPacks<E>({head_dim / 2, row_stride}, {cosines, sines, x}, [&]<int N>(Packed<N>) {
    RopeRow<E, N><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
        cosines, sines, static_cast<Arithmetic<E>>(sign), length, static_cast<int>(heads),
        static_cast<int>(head_dim / 2), row_stride, x);
  });
  return cudaGetLastError();
}

template <typename E>
int SwiGlu(const E* gate_up, int64_t rows, int64_t inner, E* activated, Stream stream) {
  if (rows == 0 || inner == 0) return cudaSuccess;
  WithPacks<E>({inner}, {gate_up, activated}, [&]<int N>(Packed<N>) {
    const unsigned blocks = BlocksOfRow(inner / N);
    SwiGluPacks<E, N>
        <<<static_cast<unsigned>(rows) * blocks, kThreads, 0, stream>>>(gate_up, inner, blocks, activated);
  });
  return cudaGetLastError();
}

template <typename E>
int SwiGluBackward(const E* gate_up, const E* grad_activated, int64_t rows, int64_t inner, E* grad_gate_up,
                   E* activated, Stream stream) {
  if (rows == 0 || inner == 0) return cudaSuccess;
  WithPacks<E>({inner}, {gate_up, grad_activated, grad_gate_up, activated}, [&]<int N>(Packed<N>) {
    const unsigned blocks = BlocksOfRow(inner / N);
    SwiGluBackwardPacks<E, N><<<static_cast<unsigned>(rows) * blocks, kThreads, 0, stream>>>(
        gate_up, grad_activated, inner, blocks, grad_gate_up, activated);
  });
  return cudaGetLastError();
}

#define TANDEM_INSTANTIATE(E)                                                                              \
  template int RmsNorm(const E*, const E*, double, int64_t, int64_t, E*, Stream);                          \
  template int RmsNormBackward(const E*, const E*, const E*, double, int64_t, int64_t, const E*, bool, E*, \
                               bool, Arithmetic<E>*, Arithmetic<E>*, Stream);                              \
  template int Rope(const Arithmetic<E>*, const Arithmetic<E>*, int, int64_t, int64_t, int64_t, int64_t,   \
                    int64_t, E*, Stream);                                                                  \
  template int SwiGlu(const E*, int64_t, int64_t, E*, Stream);                                             \
  template int SwiGluBackward(const E*, const E*, int64_t, int64_t, E*, E*, Stream);

TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(double)
TANDEM_INSTANTIATE(Bf16)

}  // namespace tandem::ops::cuda
