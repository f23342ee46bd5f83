// SPDX-License-Identifier: Apache-2.0
// Rotation and activations: loops over rows, in packs of 16 bytes if rows consist of these.
#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/warp.cuh"
#include "ops/rope.h"
#include "ops/swiglu.h"

namespace tandem::ops::cuda {
namespace {

template <int N, typename E, typename T = Arithmetic<E>>
__global__ void RopeRow(RopeArgs<E> args, int heads, int head_dim, int half) {
  const int packs = half / N;
  const int64_t position = blockIdx.x % args.length * half;
  E* const x = args.x + blockIdx.x * args.row_stride;
  for (int index = static_cast<int>(threadIdx.x); index < heads * packs; index += kThreads) {
    const int i = index % packs;
    E* const first = x + index / packs * head_dim;
    E* const second = first + half;
    Pack<E, N> a = PackAt<E, N>(first, i);
    Pack<E, N> b = PackAt<E, N>(second, i);
    const Pack<T, N> c = PackAt<T, N>(args.cosines + position, i);
    const Pack<T, N> s = PackAt<T, N>(args.sines + position, i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const T u = Widen(a.e[k]);
      const T v = Widen(b.e[k]);
      Narrow(u * c.e[k] - v * (s.e[k] * args.sign), a.e[k]);
      Narrow(v * c.e[k] + u * (s.e[k] * args.sign), b.e[k]);
    }
    SetPack(first, i, a);
    SetPack(second, i, b);
  }
}

template <typename T>
__device__ T Silu(T gate) {
  return gate / (1 + exp(-gate));
}

// The gradients of one element. activated: before its row's weight.
template <typename T>
struct SwiGluGradients {
  __device__ SwiGluGradients(T gate, T up, T grad) {
    const T sigmoid = SigmoidOf(gate);
    const T silu = gate * sigmoid;
    of_gate = grad * up * (sigmoid + silu * (1 - sigmoid));
    of_up = grad * silu;
    activated = silu * up;
  }

  T of_gate;
  T of_up;
  T activated;
};

// A block has kThreads packs of one row; blocks_a_row of them are a row.
template <int N, typename E>
__global__ void SwiGluPacks(SwiGluArgs<E> args, unsigned blocks_a_row) {
  using T = Arithmetic<E>;
  const int64_t inner = args.inner;
  const int64_t row = blockIdx.x / blocks_a_row;
  const int64_t i = static_cast<int64_t>(blockIdx.x % blocks_a_row) * kThreads + threadIdx.x;
  if (i >= inner / N) {
    return;
  }
  const E* const gate_up = args.gate_up + row * 2 * inner;
  Pack<E, N> gate = PackAt<E, N>(gate_up, i);
  const Pack<E, N> up = PackAt<E, N>(gate_up + inner, i);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    Narrow(Silu<T>(Widen(gate.e[k])) * Widen(up.e[k]), gate.e[k]);
  }
  SetPack(args.activated + row * inner, i, gate);
}

template <int N, typename E>
__global__ void SwiGluBackwardPacks(SwiGluBackwardArgs<E> args, unsigned blocks_a_row) {
  using T = Arithmetic<E>;
  const int64_t inner = args.inner;
  const int64_t row = blockIdx.x / blocks_a_row;
  const int64_t i = static_cast<int64_t>(blockIdx.x % blocks_a_row) * kThreads + threadIdx.x;
  if (i >= inner / N) {
    return;
  }
  const E* const gate_up = args.gate_up + row * 2 * inner;
  E* const grad_gate_up = args.grad_gate_up + row * 2 * inner;
  Pack<E, N> gate = PackAt<E, N>(gate_up, i);
  Pack<E, N> up = PackAt<E, N>(gate_up + inner, i);
  Pack<E, N> grads = PackAt<E, N>(args.grad_activated + row * inner, i);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const SwiGluGradients<T> gradients(Widen(gate.e[k]), Widen(up.e[k]), Widen(grads.e[k]));
    Narrow(gradients.of_gate, gate.e[k]);
    Narrow(gradients.of_up, up.e[k]);
    Narrow(gradients.activated, grads.e[k]);
  }
  SetPack(grad_gate_up, i, gate);
  SetPack(grad_gate_up + inner, i, up);
  SetPack(args.activated + row * inner, i, grads);
}

// Calls visit(row, lane) for the rows of the calling warp, which are as far apart as the grid has warps.
template <typename Visit>
__device__ void ForRowsOfWarp(int64_t rows, const Visit& visit) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  for (int64_t row = first; row < rows; row += static_cast<int64_t>(gridDim.x) * kWarps) {
    visit(row, static_cast<int>(threadIdx.x) % 32);
  }
}

template <typename Args>
__device__ int64_t RowsThere(const Args& args) {
  return args.rows_there == nullptr ? args.rows : *args.rows_there;
}

// With weights. A warp has one of the rows that exist.
template <int N, typename E>
__global__ void WeightedSwiGluRows(SwiGluArgs<E> args) {
  using T = Arithmetic<E>;
  const int64_t inner = args.inner;
  ForRowsOfWarp(RowsThere(args), [&](int64_t row, int lane) {
    const E* const gates = args.gate_up + row * 2 * inner;
    const T weight = args.weights[row];
    for (int64_t i = lane; i < inner / N; i += 32) {
      Pack<E, N> gate = PackAt<E, N>(gates, i);
      const Pack<E, N> up = PackAt<E, N>(gates + inner, i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        Narrow(Silu<T>(Widen(gate.e[k])) * Widen(up.e[k]) * weight, gate.e[k]);
      }
      SetPack(args.activated + row * inner, i, gate);
    }
  });
}

template <int N, typename E>
__global__ void WeightedSwiGluBackwardRows(SwiGluBackwardArgs<E> args) {
  using T = Arithmetic<E>;
  const int64_t inner = args.inner;
  ForRowsOfWarp(RowsThere(args), [&](int64_t row, int lane) {
    const E* const gates = args.gate_up + row * 2 * inner;
    E* const grad_gates = args.grad_gate_up + row * 2 * inner;
    const T weight = args.weights[row];
    T grad_weight = 0;
    for (int64_t i = lane; i < inner / N; i += 32) {
      Pack<E, N> gate = PackAt<E, N>(gates, i);
      Pack<E, N> up = PackAt<E, N>(gates + inner, i);
      Pack<E, N> grads = PackAt<E, N>(args.grad_activated + row * inner, i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const T grad = Widen(grads.e[k]);
        const SwiGluGradients<T> gradients(Widen(gate.e[k]), Widen(up.e[k]), grad * weight);
        grad_weight += grad * gradients.activated;
        Narrow(gradients.of_gate, gate.e[k]);
        Narrow(gradients.of_up, up.e[k]);
        Narrow(gradients.activated * weight, grads.e[k]);
      }
      SetPack(grad_gates, i, gate);
      SetPack(grad_gates + inner, i, up);
      SetPack(args.activated + row * inner, i, grads);
    }
    grad_weight = WarpSum(grad_weight);
    if (lane == 0) args.grad_weights[row] = grad_weight;
  });
}

unsigned WarpBlocks(int64_t rows) {
  return static_cast<unsigned>(std::min<int64_t>((rows + kWarps - 1) / kWarps, 1 << 16));
}

unsigned BlocksOfRow(int64_t packs) { return static_cast<unsigned>((packs + kThreads - 1) / kThreads); }

}  // namespace

template <typename E>
int Launch(const RopeArgs<E>& args, Stream stream) {
  if (args.rows == 0 || args.heads == 0) {
    return cudaSuccess;
  }
  WithPacks<E>({args.pairs, args.head_dim, args.row_stride}, {args.cosines, args.sines, args.x},
               [&]<int N>(Packed<N>) {
                 RopeRow<N><<<static_cast<unsigned>(args.rows), kThreads, 0, stream>>>(
                     args, static_cast<int>(args.heads), static_cast<int>(args.head_dim),
                     static_cast<int>(args.pairs));
               });
  return cudaGetLastError();
}
TANDEM_KERNEL(RopeArgs)

template <typename E>
int Launch(const SwiGluArgs<E>& args, Stream stream) {
  if (args.rows == 0 || args.inner == 0) {
    return cudaSuccess;
  }
  WithPacks<E>({args.inner}, {args.gate_up, args.activated}, [&]<int N>(Packed<N>) {
    if (args.weights != nullptr) {
      WeightedSwiGluRows<N><<<WarpBlocks(args.rows), kThreads, 0, stream>>>(args);
    } else {
      const unsigned blocks = BlocksOfRow(args.inner / N);
      SwiGluPacks<N><<<static_cast<unsigned>(args.rows) * blocks, kThreads, 0, stream>>>(args, blocks);
    }
  });
  return cudaGetLastError();
}
TANDEM_KERNEL(SwiGluArgs)

template <typename E>
int Launch(const SwiGluBackwardArgs<E>& args, Stream stream) {
  if (args.rows == 0 || args.inner == 0) {
    return cudaSuccess;
  }
  WithPacks<E>({args.inner}, {args.gate_up, args.activated, args.grad_gate_up, args.grad_activated},
               [&]<int N>(Packed<N>) {
                 if (args.weights != nullptr) {
                   WeightedSwiGluBackwardRows<N><<<WarpBlocks(args.rows), kThreads, 0, stream>>>(args);
                 } else {
                   const unsigned blocks = BlocksOfRow(args.inner / N);
                   SwiGluBackwardPacks<N>
                       <<<static_cast<unsigned>(args.rows) * blocks, kThreads, 0, stream>>>(args, blocks);
                 }
               });
  return cudaGetLastError();
}
TANDEM_KERNEL(SwiGluBackwardArgs)

}  // namespace tandem::ops::cuda
