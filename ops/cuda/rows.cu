// SPDX-License-Identifier: Apache-2.0
// Rotation and activation: loops over rows, in packs of 16 bytes where rows consist of such.
#include <cuda_runtime.h>

#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"

namespace tandem::ops::cuda {
namespace {

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

#define TANDEM_INSTANTIATE(E)                                                                            \
  template int Rope(const Arithmetic<E>*, const Arithmetic<E>*, int, int64_t, int64_t, int64_t, int64_t, \
                    int64_t, E*, Stream);                                                                \
  template int SwiGlu(const E*, int64_t, int64_t, E*, Stream);                                           \
  template int SwiGluBackward(const E*, const E*, int64_t, int64_t, E*, E*, Stream);

TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(double)
TANDEM_INSTANTIATE(Bf16)

}  // namespace tandem::ops::cuda
