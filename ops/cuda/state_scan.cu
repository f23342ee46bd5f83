// SPDX-License-Identifier: Apache-2.0
// The scan of Mamba-2 mixers in pieces (state_scan.cuh).
#include <cuda_runtime.h>

#include <type_traits>

#include "ops/cuda/state_scan.cuh"
#include "ops/cuda/tensor_scan.h"

namespace tandem::ops::cuda {
namespace {

template <typename T>
struct ForwardMemory {
  TileMemory<T> tiles;
  PieceMatrix<T> weights;
  PieceFactors<T> factors;
};

// A block computes one head of a piece.
template <typename E, typename T>
__global__ void __launch_bounds__(kThreads) WriteOutputs(StateScanArgs<E> args, ScanWork<T> work) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  ForwardMemory<T>& memory = *reinterpret_cast<ForwardMemory<T>*>(dynamic);
  const ScanShape& s = args.shape;
  const int64_t index = blockIdx.x / s.heads;
  const int64_t head = blockIdx.x % s.heads;
  const Piece piece(s, index);
  const HeadOfPiece<E, T> in(args, work, piece, index, head);
  const int tokens = piece.tokens;
  memory.factors.Read(args, piece, in);
  MultiplyCB(memory.tiles, in, tokens, memory.weights);
  for (int i = static_cast<int>(threadIdx.x); i < tokens * tokens; i += kThreads) {
    memory.weights.at[i / tokens][i % tokens] *=
        memory.factors.L(i / tokens, i % tokens) * memory.factors.lengths[i % tokens];
  }
  __syncthreads();
  const T* const state = work.states + in.state;
  const T d = args.d[head];
  Product(
      memory.tiles, tokens, s.head_dim, tokens + s.state,
      [&](int64_t i, int64_t k) {
        return k < tokens ? memory.weights.at[i][k] : memory.factors.from_before[i] * in.C(i, k - tokens);
      },
      [&](int64_t k, int64_t p) { return k < tokens ? in.X(k, p) : state[p * s.state + k - tokens]; },
      [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
        EachInside(row, column, tokens, s.head_dim, elements, [&](int64_t i, int64_t p, T element) {
          Narrow(element + d * in.X(i, p), args.y[(piece.row + i) * s.inner() + head * s.head_dim + p]);
        });
      });
}

}  // namespace

template <typename E>
int Launch(const StateScanArgs<E>& args, Stream stream) {
  if constexpr (std::is_same_v<E, Bf16>) {
    if (ScansOnTensorCores(args.shape, sizeof(E))) {
      return LaunchTensorScan(args, stream);
    }
  }
  using T = Arithmetic<E>;
  const ScanShape& s = args.shape;
  const ScanWork<T> work(s, args.work.begin);
  LaunchStates<E>(args, work, args.states, stream);
  LaunchWith<ForwardMemory<T>>(WriteOutputs<E, T>, Pieces(s) * s.heads, kThreads, stream, args, work);
  return cudaGetLastError();
}
TANDEM_KERNEL(StateScanArgs)

}  // namespace tandem::ops::cuda
