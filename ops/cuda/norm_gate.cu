// SPDX-License-Identifier: Apache-2.0
// The norm before a gate. A warp has a row, which is one head.
#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/kernels.h"
#include "ops/cuda/partial_sums.cuh"
#include "ops/delta_work.h"
#include "ops/norm_gate.h"

namespace tandem::ops::cuda {
namespace {

// Returns the factor that normalises a row y; the lanes of a warp call it together.
template <typename E, typename T = Arithmetic<E>>
__device__ T ReciprocalRms(const NormGateArgs<E>& args, const E* y) {
  T squares = 0;
  for (int64_t i = LaneOf(); i < args.columns; i += 32) {
    squares += Widen(y[i]) * Widen(y[i]);
  }
  return rsqrt(WarpSum(squares) / static_cast<T>(args.columns) + static_cast<T>(args.epsilon));
}

__device__ int64_t WarpOf() { return static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32; }
unsigned WarpBlocks(int64_t warps) {
  return static_cast<unsigned>(std::min<int64_t>((warps + kWarps - 1) / kWarps, 65536));
}

template <typename E>
__global__ void GateNormed(NormGateArgs<E> args) {
  using T = Arithmetic<E>;
  for (int64_t row = WarpOf(); row < args.rows; row += static_cast<int64_t>(gridDim.x) * kWarps) {
    const E* const y = args.y + row * args.columns;
    const E* const gate = args.gate + args.GateOf(row, args.gate_stride);
    const T r = ReciprocalRms(args, y);
    for (int64_t i = LaneOf(); i < args.columns; i += 32) {
      const T g = Widen(gate[i]);
      Narrow(Widen(y[i]) * r * Widen(args.weight[i]) * g / (1 + exp(-g)), args.gated[row * args.columns + i]);
    }
  }
}

// A warp has every warps-th row. partial_sums: [warps, columns], of the weight's gradient.
template <typename E, typename T>
__global__ void GateNormedBackward(NormGateBackwardArgs<E> args, int64_t warps, T* partial_sums) {
  const NormGateArgs<E>& in = args.forward;
  if (WarpOf() >= warps) {
    return;
  }
  T* const weights = partial_sums + WarpOf() * in.columns;
  for (int64_t i = LaneOf(); i < in.columns; i += 32) {
    weights[i] = 0;
  }
  for (int64_t row = WarpOf(); row < in.rows; row += warps) {
    const E* const y = in.y + row * in.columns;
    const E* const gate = in.gate + in.GateOf(row, in.gate_stride);
    const E* const grad = args.grad_gated + row * in.columns;
    E* const grad_gate = args.grad_gate + in.GateOf(row, args.grad_gate_stride);
    const T r = ReciprocalRms(in, y);
    T dot = 0;
    for (int64_t i = LaneOf(); i < in.columns; i += 32) {
      const T g = Widen(gate[i]);
      const T sigmoid = SigmoidOf(g);
      const T normed = Widen(y[i]) * r;
      const T of_gated = Widen(grad[i]);
      const T weight = Widen(in.weight[i]);
      weights[i] += of_gated * g * sigmoid * normed;
      Narrow(of_gated * normed * weight * (sigmoid + g * sigmoid * (1 - sigmoid)), grad_gate[i]);
      dot += of_gated * g * sigmoid * weight * normed;
    }
    const T shrink = WarpSum(dot) / static_cast<T>(in.columns);
    for (int64_t i = LaneOf(); i < in.columns; i += 32) {
      const T g = Widen(gate[i]);
      const T of_normed = Widen(grad[i]) * g / (1 + exp(-g)) * Widen(in.weight[i]);
      Narrow((of_normed - Widen(y[i]) * r * shrink) * r, args.grad_y[row * in.columns + i]);
    }
  }
}

}  // namespace

template <typename E>
int Launch(const NormGateArgs<E>& args, Stream stream) {
  if (args.rows > 0) {
    GateNormed<<<WarpBlocks(args.rows), kThreads, 0, stream>>>(args);
  }
  return cudaGetLastError();
}
TANDEM_KERNEL(NormGateArgs)

template <typename E>
int Launch(const NormGateBackwardArgs<E>& args, Stream stream) {
  auto* const partial_sums = static_cast<Arithmetic<E>*>(args.work.begin);
  const int64_t columns = args.forward.columns;
  const int64_t warps = std::min(args.forward.rows, kNormGateRows);
  if (warps > 0) {
    GateNormedBackward<<<WarpBlocks(warps), kThreads, 0, stream>>>(args, warps, partial_sums);
  }
  AddPartialSums<<<PartialSumBlocks(columns), kThreads, 0, stream>>>(partial_sums, columns, warps, columns,
                                                                     /*add=*/false, args.grad_weight);
  return cudaGetLastError();
}
TANDEM_KERNEL(NormGateBackwardArgs)

}  // namespace tandem::ops::cuda
