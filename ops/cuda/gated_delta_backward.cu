// SPDX-License-Identifier: Apache-2.0
// The backward of gated_delta.cu. With the adjoint G of the state behind a piece, U = (1 + A)^-1 R gives
//   dU_j = sum_{i>=j} L(i, j) (q_i · k_j) dy_i + L(last, j) G^T k_j;  dR = (1 + A)^-T dU;  dA = -dR U^T
//   the adjoint before it: e_last G + sum_i e_i (q_i ⊗ dy_i - β_i k_i ⊗ dR_i)
#include <cuda_runtime.h>

#include <type_traits>

#include "ops/cuda/gated_delta.cuh"
#include "ops/cuda/gated_delta_gradients.cuh"
#include "ops/cuda/tensor_delta.h"

namespace tandem::ops::cuda {
namespace {

// Computes, from the adjoints after pieces, the gradients of R and the adjoints before them, in reverse
// order.
template <typename E, typename T>
__global__ void __launch_bounds__(kThreads)
    PassDeltaAdjoints(GatedDeltaBackwardArgs<E> args, DeltaWork<T> work) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  PassMemory<T>& m = *reinterpret_cast<PassMemory<T>*>(dynamic);
  const DeltaShape& s = args.shape;
  const DeltaColumns columns(s, blockIdx.x);
  const int64_t pieces = PiecesOfSequence(s);
  for (int64_t step = 0; step < pieces; ++step) {
    const int64_t index = columns.sequence * pieces + pieces - 1 - step;
    const Piece piece(s, index);
    const DeltaHead<E, T> in(args, work, piece, index, columns.head);
    const int tokens = piece.tokens;
    const int64_t first = columns.head * s.value_dim + columns.first;  // of all values
    T* const adjoint = work.adjoints + in.state + columns.first * s.key_dim;
    if (step == 0) {
      for (int64_t i = threadIdx.x; i < columns.count * s.key_dim; i += kThreads) {
        adjoint[i] = 0;
      }
    }
    const auto sum_of = [&](int t) { return in.Sum(t); };
    const auto grad_y = [&](int64_t i, int64_t c) {
      return Widen(args.grad_y[(piece.row + i) * s.values() + first + c]);
    };
    T* const grad_right = work.grad_right + piece.row * s.values() + first;
    m.decays.Read(args.documents, piece, sum_of);
    Product(
        m.tiles, tokens, columns.count, tokens + s.key_dim,
        [&](int64_t j, int64_t k) {
          return k < tokens ? work.reads[in.matrix + k * kPiece + j]
                            : m.decays.to_behind[j] * in.K(j, k - tokens);
        },
        [&](int64_t k, int64_t c) { return k < tokens ? grad_y(k, c) : adjoint[c * s.key_dim + k - tokens]; },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          EachInside(row, column, tokens, columns.count, elements,
                     [&](int64_t j, int64_t c, T element) { m.right.at[j][c] = element; });
        });
    Product(
        m.tiles, tokens, columns.count, tokens,
        [&](int64_t i, int64_t j) { return work.solved[in.matrix + j * kPiece + i]; },
        [&](int64_t j, int64_t c) { return m.right.at[j][c]; },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          EachInside(row, column, tokens, columns.count, elements,
                     [&](int64_t i, int64_t c, T element) { grad_right[i * s.values() + c] = element; });
        });
    if (step + 1 == pieces) {
      return;
    }
    const T decay = DecayOf<T>(args.documents, piece, sum_of);
    Product(
        m.tiles, columns.count, s.key_dim, 2 * tokens,
        [&](int64_t c, int64_t k) {
          return k < tokens ? m.decays.from_before[k] * grad_y(k, c)
                            : -m.decays.from_before[k - tokens] * in.Beta(k - tokens) *
                                  grad_right[(k - tokens) * s.values() + c];
        },
        [&](int64_t k, int64_t n) { return k < tokens ? in.Q(k, n) : in.K(k - tokens, n); },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          EachInside(row, column, columns.count, s.key_dim, elements, [&](int64_t c, int64_t n, T element) {
            adjoint[c * s.key_dim + n - s.state()] = decay * adjoint[c * s.key_dim + n] + element;
          });
        });
  }
}

template <typename E, typename T>
__global__ void __launch_bounds__(kThreads)
    WriteDeltaGradients(GatedDeltaBackwardArgs<E> args, DeltaWork<T> work) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  const int64_t index = blockIdx.x / args.shape.key_heads;
  const Piece piece(args.shape, index);
  DeltaGradientBlock<E, T>(args, work, *reinterpret_cast<DeltaGradientMemory<T>*>(dynamic), piece, index,
                           blockIdx.x % args.shape.key_heads)
      .Run();
}

}  // namespace

template <typename E>
int Launch(const GatedDeltaBackwardArgs<E>& args, Stream stream) {
  if constexpr (std::is_same_v<E, Bf16>) {
    if (DeltasOnTensorCores(args.shape, sizeof(E))) {
      return LaunchTensorDelta(args, stream);
    }
  }
  using T = Arithmetic<E>;
  const DeltaShape& s = args.shape;
  const DeltaWork<T> work(s, args.work.begin);
  LaunchDeltaStates(args, work, static_cast<T*>(nullptr), stream);
  LaunchWith<PassMemory<T>>(PassDeltaAdjoints<E, T>, s.sequences * s.value_heads * DeltaColumns::Tiles(s),
                            kThreads, stream, args, work);
  LaunchWith<DeltaGradientMemory<T>>(WriteDeltaGradients<E, T>, Pieces(s) * s.key_heads, kThreads, stream,
                                     args, work);
  AddDeltaSums(args, work.partial, stream);
  return cudaGetLastError();
}
TANDEM_KERNEL(GatedDeltaBackwardArgs)

}  // namespace tandem::ops::cuda
