// SPDX-License-Identifier: Apache-2.0
// Gates of attentions, with a block for each token, and gates of tokens, with a warp for each row; in the
// backward a block has every gridDim.x-th row. Rows that consist of packs of 16 bytes are read in packs.
#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/kernels.h"
#include "ops/cuda/partial_sums.cuh"
#include "ops/output_gate.h"
#include "ops/row_work.h"
#include "ops/token_gate.h"

namespace tandem::ops::cuda {
namespace {

// Calls visit(begin of a pack among the token's heads, begin of its gate in qkv).
template <int N, typename E, typename Visit>
__device__ void ForPacksOfToken(const OutputGateArgs<E>& args, const Visit& visit) {
  const int of_head = static_cast<int>(args.head_dim) / N;
  const int packs = static_cast<int>(args.heads) * of_head;
  const int64_t begin = blockIdx.x * args.heads * args.head_dim;
  for (int i = static_cast<int>(threadIdx.x); i < packs; i += kThreads) {
    visit(begin + i * N, args.GateOf(blockIdx.x, i / of_head) + i % of_head * N);
  }
}

template <int N, typename E>
__global__ void GateToken(OutputGateArgs<E> args) {
  ForPacksOfToken<N>(args, [&](int64_t at, int64_t gate_at) {
    Pack<E, N> value = PackAt<E, N>(args.context + at, 0);
    const Pack<E, N> gate = PackAt<E, N>(args.qkv + gate_at, 0);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      Narrow(Widen(value.e[k]) * SigmoidOf(Widen(gate.e[k])), value.e[k]);
    }
    SetPack(args.gated + at, 0, value);
  });
}

template <int N, typename E>
__global__ void GateTokenBackward(OutputGateBackwardArgs<E> args) {
  using T = Arithmetic<E>;
  ForPacksOfToken<N>(args.forward, [&](int64_t at, int64_t gate_at) {
    Pack<E, N> value = PackAt<E, N>(args.forward.context + at, 0);
    Pack<E, N> gate = PackAt<E, N>(args.forward.qkv + gate_at, 0);
    Pack<E, N> grad = PackAt<E, N>(args.grad_gated + at, 0);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const T sigmoid = SigmoidOf(Widen(gate.e[k]));
      const T of_gated = Widen(grad.e[k]);
      const T gated = Widen(value.e[k]) * sigmoid;
      Narrow(gated, value.e[k]);
      Narrow(of_gated * sigmoid, grad.e[k]);
      Narrow(of_gated * gated * (1 - sigmoid), gate.e[k]);
    }
    SetPack(args.forward.gated + at, 0, value);
    SetPack(args.grad_context + at, 0, grad);
    SetPack(args.grad_qkv + gate_at, 0, gate);
  });
}

template <int N, typename E>
__global__ void TokenGates(TokenGateArgs<E> args) {
  using T = Arithmetic<E>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= args.rows) {
    return;
  }
  T dot = 0;
  for (int64_t i = LaneOf(); i < args.columns / N; i += 32) {
    const Pack<E, N> x = PackAt<E, N>(args.x + row * args.columns, i);
    const Pack<E, N> weight = PackAt<E, N>(args.weight, i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      dot += Widen(x.e[k]) * Widen(weight.e[k]);
    }
  }
  dot = WarpSum(dot);
  if (LaneOf() == 0) {
    args.gates[row] = SigmoidOf(dot);
  }
}

// A block has every gridDim.x-th row, and adds up the weight's gradient of its rows in partial_sums [blocks,
// columns]; a thread has the same columns for each row. partial_sums may be null.
template <int N, typename E, typename T = Arithmetic<E>>
__global__ void TokenGatesBackward(TokenGateBackwardArgs<E> args, T* partial_sums) {
  const TokenGateArgs<E>& in = args.forward;
  T* const sums = partial_sums == nullptr ? nullptr : partial_sums + blockIdx.x * in.columns;
  for (int64_t i = threadIdx.x; i < in.columns / N; i += kThreads) {
    const Pack<E, N> weight = PackAt<E, N>(in.weight, i);
    Pack<T, N> own{};
    for (int64_t row = blockIdx.x; row < in.rows; row += gridDim.x) {
      const T gate = in.gates[row];
      const T grad = args.grad_gates[row] * gate * (1 - gate);
      const Pack<E, N> x = PackAt<E, N>(in.x + row * in.columns, i);
      E* const to = args.grad_x + row * in.columns;
      Pack<E, N> grad_x = PackAt<E, N>(to, i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        Narrow(Widen(grad_x.e[k]) + grad * Widen(weight.e[k]), grad_x.e[k]);
        own.e[k] += grad * Widen(x.e[k]);
      }
      SetPack(to, i, grad_x);
    }
    if (sums != nullptr) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        sums[i * N + k] = own.e[k];
      }
    }
  }
}

}  // namespace

template <typename E>
int Launch(const OutputGateArgs<E>& args, Stream stream) {
  if (args.tokens > 0) {
    WithPacks<E>({args.head_dim, args.qkv_stride}, {args.context, args.qkv, args.gated},
                 [&]<int N>(Packed<N>) {
                   GateToken<N><<<static_cast<unsigned>(args.tokens), kThreads, 0, stream>>>(args);
                 });
  }
  return cudaGetLastError();
}
TANDEM_KERNEL(OutputGateArgs)

template <typename E>
int Launch(const OutputGateBackwardArgs<E>& args, Stream stream) {
  const OutputGateArgs<E>& in = args.forward;
  if (in.tokens > 0) {
    WithPacks<E>({in.head_dim, in.qkv_stride},
                 {in.context, in.qkv, in.gated, args.grad_gated, args.grad_context, args.grad_qkv},
                 [&]<int N>(Packed<N>) {
                   GateTokenBackward<N><<<static_cast<unsigned>(in.tokens), kThreads, 0, stream>>>(args);
                 });
  }
  return cudaGetLastError();
}
TANDEM_KERNEL(OutputGateBackwardArgs)

template <typename E>
int Launch(const TokenGateArgs<E>& args, Stream stream) {
  if (args.rows > 0) {
    WithPacks<E>({args.columns}, {args.x, args.weight}, [&]<int N>(Packed<N>) {
      TokenGates<N><<<static_cast<unsigned>((args.rows + kWarps - 1) / kWarps), kThreads, 0, stream>>>(args);
    });
  }
  return cudaGetLastError();
}
TANDEM_KERNEL(TokenGateArgs)

template <typename E>
int Launch(const TokenGateBackwardArgs<E>& args, Stream stream) {
  using T = Arithmetic<E>;
  const TokenGateArgs<E>& in = args.forward;
  T* const partial_sums = args.grad_weight == nullptr ? nullptr : static_cast<T*>(args.work.begin);
  const int64_t blocks = std::min(in.rows, kNormGroups);
  if (blocks > 0) {
    WithPacks<E>({in.columns}, {in.x, in.weight, args.grad_x}, [&]<int N>(Packed<N>) {
      TokenGatesBackward<N><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(args, partial_sums);
    });
  }
  if (args.grad_weight != nullptr) {
    AddPartialSums<<<PartialSumBlocks(in.columns), kThreads, 0, stream>>>(
        partial_sums, in.columns, blocks, in.columns, args.add_weight, args.grad_weight);
  }
  return cudaGetLastError();
}
TANDEM_KERNEL(TokenGateBackwardArgs)

}  // namespace tandem::ops::cuda
