// SPDX-License-Identifier: Apache-2.0
// The activation of experts, a block a row.
#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/block.cuh"
#include "ops/cuda/sparse_kernels.h"

namespace tandem::ops::cuda {
namespace {

// A block has every gridDim.x-th row of those there are.
template <typename E, int N>
__global__ void WeightedSwiGluRows(const int64_t* rows_there, const E* gate_up, const Arithmetic<E>* weights,
                                   int64_t inner, E* activated) {
  using T = Arithmetic<E>;
  const int64_t rows = *rows_there;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const E* const gates = gate_up + row * 2 * inner;
    const T weight = weights[row];
    for (int64_t i = threadIdx.x; i < inner / N; i += kThreads) {
      Pack<E, N> gate = PackAt<E, N>(gates, i);
      const Pack<E, N> up = PackAt<E, N>(gates + inner, i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const T g = Widen(gate.e[k]);
        Narrow(g / (1 + exp(-g)) * Widen(up.e[k]) * weight, gate.e[k]);
      }
      SetPack(activated + row * inner, i, gate);
    }
  }
}

// activated may be grad_activated.
template <typename E, int N>
__global__ void WeightedSwiGluBackwardRows(const int64_t* rows_there, const E* gate_up,
                                           const Arithmetic<E>* weights, const E* grad_activated,
                                           int64_t inner, E* grad_gate_up, E* activated,
                                           Arithmetic<E>* grad_weights) {
  using T = Arithmetic<E>;
  const int64_t rows = *rows_there;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const E* const gates = gate_up + row * 2 * inner;
    E* const grad_gates = grad_gate_up + row * 2 * inner;
    const T weight = weights[row];
    T grad_weight = 0;
    for (int64_t i = threadIdx.x; i < inner / N; i += kThreads) {
      Pack<E, N> gate = PackAt<E, N>(gates, i);
      Pack<E, N> up = PackAt<E, N>(gates + inner, i);
      Pack<E, N> grads = PackAt<E, N>(grad_activated + row * inner, i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const T g = Widen(gate.e[k]);
        const T u = Widen(up.e[k]);
        const T grad = Widen(grads.e[k]);
        const T sigmoid = 1 / (1 + exp(-g));
        const T silu = g * sigmoid;
        grad_weight += grad * (silu * u);
        Narrow(grad * weight * u * (sigmoid + silu * (1 - sigmoid)), gate.e[k]);
        Narrow(grad * weight * silu, up.e[k]);
        Narrow(silu * u * weight, grads.e[k]);
      }
      SetPack(grad_gates, i, gate);
      SetPack(grad_gates + inner, i, up);
      SetPack(activated + row * inner, i, grads);
    }
    grad_weight = BlockSum(grad_weight);
    if (threadIdx.x == 0) grad_weights[row] = grad_weight;
  }
}

unsigned RowBlocks(int64_t rows) { return static_cast<unsigned>(std::min<int64_t>(rows, 1 << 16)); }

}  // namespace

template <typename E>
int WeightedSwiGlu(const int64_t* rows_there, const E* gate_up, const Arithmetic<E>* weights, int64_t rows,
                   int64_t inner, E* activated, Stream stream) {
  if (rows == 0 || inner == 0) return cudaSuccess;
  WithPacks<E>({inner}, {gate_up, activated}, [&]<int N>(Packed<N>) {
    WeightedSwiGluRows<E, N>
        <<<RowBlocks(rows), kThreads, 0, stream>>>(rows_there, gate_up, weights, inner, activated);
  });
  return cudaGetLastError();
}

template <typename E>
int WeightedSwiGluBackward(const int64_t* rows_there, const E* gate_up, const Arithmetic<E>* weights,
                           const E* grad_activated, int64_t rows, int64_t inner, E* grad_gate_up,
                           E* activated, Arithmetic<E>* grad_weights, Stream stream) {
  if (rows == 0 || inner == 0) return cudaSuccess;
  WithPacks<E>({inner}, {gate_up, grad_activated, grad_gate_up, activated}, [&]<int N>(Packed<N>) {
    WeightedSwiGluBackwardRows<E, N><<<RowBlocks(rows), kThreads, 0, stream>>>(
        rows_there, gate_up, weights, grad_activated, inner, grad_gate_up, activated, grad_weights);
  });
  return cudaGetLastError();
}

#define TANDEM_INSTANTIATE(E)                                                                                \
  template int WeightedSwiGlu(const int64_t*, const E*, const Arithmetic<E>*, int64_t, int64_t, E*, Stream); \
  template int WeightedSwiGluBackward(const int64_t*, const E*, const Arithmetic<E>*, const E*, int64_t,     \
                                      int64_t, E*, E*, Arithmetic<E>*, Stream);

TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(double)
TANDEM_INSTANTIATE(Bf16)

}  // namespace tandem::ops::cuda
