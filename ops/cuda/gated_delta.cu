// SPDX-License-Identifier: Apache-2.0
// The recurrence of gated delta nets in pieces (gated_delta.cuh). Each piece's system is solved by itself;
// then a block passes a few value channels of a head from piece to piece; then outputs are written piece by
// piece.
#include <cuda_runtime.h>

#include <type_traits>

#include "ops/cuda/gated_delta.cuh"
#include "ops/cuda/tensor_delta.h"

namespace tandem::ops::cuda {
namespace {

template <typename T>
struct SolveMemory {
  TileMemory<T> tiles;
  PieceMatrix<T> matrix;   // A
  PieceMatrix<T> inverse;  // of 1 + A
  PieceDecays<T> decays;
};

// A block computes one head of a piece.
template <typename E, typename Args, typename T>
__global__ void __launch_bounds__(kThreads) Solve(Args args, DeltaWork<T> work) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  SolveMemory<T>& m = *reinterpret_cast<SolveMemory<T>*>(dynamic);
  const DeltaShape& s = args.shape;
  const int64_t index = blockIdx.x / s.value_heads;
  const Piece piece(s, index);
  const DeltaHead<E, T> in(args, work, piece, index, blockIdx.x % s.value_heads);
  const int tokens = piece.tokens;
  m.decays.Read(args.documents, piece, [&](int t) { return in.Sum(t); });
  Product(
      m.tiles, tokens, tokens, s.key_dim, [&](int64_t i, int64_t n) { return in.K(i, n); },
      [&](int64_t n, int64_t j) { return in.K(j, n); },
      [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
        EachInside(row, column, tokens, tokens, elements, [&](int64_t i, int64_t j, T element) {
          m.matrix.at[i][j] = j < i ? in.Beta(i) * m.decays.L(i, j) * element : T{0};
        });
      });
  const int column = static_cast<int>(threadIdx.x);  // a thread computes one column of the inverse
  for (int i = 0; i < tokens && column < tokens; ++i) {
    T element = i == column ? T{1} : T{0};
    for (int j = column; j < i; ++j) {
      element -= m.matrix.at[i][j] * m.inverse.at[j][column];
    }
    m.inverse.at[i][column] = element;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < tokens * tokens; i += kThreads) {
    work.solved[in.matrix + i / tokens * kPiece + i % tokens] = m.inverse.at[i / tokens][i % tokens];
  }
  Product(
      m.tiles, tokens, tokens, s.key_dim, [&](int64_t i, int64_t n) { return in.Q(i, n); },
      [&](int64_t n, int64_t j) { return in.K(j, n); },
      [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
        EachInside(row, column, tokens, tokens, elements, [&](int64_t i, int64_t j, T element) {
          work.reads[in.matrix + i * kPiece + j] = m.decays.L(i, j) * element;
        });
      });
}

// Computes, from the states before pieces, what their tokens write and the states after them, in order.
// kept: gets the states before chunks; may be null.
template <typename E, typename Args, typename T>
__global__ void __launch_bounds__(kThreads) PassDeltaStates(Args args, DeltaWork<T> work, T* kept) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  PassMemory<T>& m = *reinterpret_cast<PassMemory<T>*>(dynamic);
  const DeltaShape& s = args.shape;
  const DeltaColumns columns(s, blockIdx.x);
  const int64_t pieces = PiecesOfSequence(s);
  const int64_t numbers = columns.count * s.key_dim;
  for (int64_t step = 0; step < pieces; ++step) {
    const int64_t index = columns.sequence * pieces + step;
    const Piece piece(s, index);
    const DeltaHead<E, T> in(args, work, piece, index, columns.head);
    const int tokens = piece.tokens;
    T* const state = work.states + in.state + columns.first * s.key_dim;
    T* const chunk =
        kept == nullptr || !piece.begins_chunk
            ? nullptr
            : kept + ((piece.chunk_index * s.value_heads + columns.head) * s.value_dim + columns.first) *
                         s.key_dim;
    for (int64_t i = threadIdx.x; i < numbers; i += kThreads) {
      if (step == 0) {
        state[i] = 0;
      }
      if (chunk != nullptr) {
        chunk[i] = state[i];
      }
    }
    const auto sum_of = [&](int t) { return in.Sum(t); };
    m.decays.Read(args.documents, piece, sum_of);
    Product(
        m.tiles, tokens, columns.count, s.key_dim, [&](int64_t i, int64_t n) { return in.K(i, n); },
        [&](int64_t n, int64_t c) { return state[c * s.key_dim + n]; },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          EachInside(row, column, tokens, columns.count, elements, [&](int64_t i, int64_t c, T element) {
            m.right.at[i][c] = in.Beta(i) * (in.V(i, columns.first + c) - m.decays.from_before[i] * element);
          });
        });
    Product(
        m.tiles, tokens, columns.count, tokens,
        [&](int64_t i, int64_t j) { return work.solved[in.matrix + i * kPiece + j]; },
        [&](int64_t j, int64_t c) { return m.right.at[j][c]; },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          EachInside(row, column, tokens, columns.count, elements,
                     [&](int64_t i, int64_t c, T element) { in.Written(i, columns.first + c) = element; });
        });
    if (step + 1 == pieces) {
      return;
    }
    const T decay = DecayOf<T>(args.documents, piece, sum_of);
    Product(
        m.tiles, columns.count, s.key_dim, tokens,
        [&](int64_t c, int64_t j) { return m.decays.to_behind[j] * in.Written(j, columns.first + c); },
        [&](int64_t j, int64_t n) { return in.K(j, n); },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          EachInside(row, column, columns.count, s.key_dim, elements, [&](int64_t c, int64_t n, T element) {
            state[s.state() + c * s.key_dim + n] = decay * state[c * s.key_dim + n] + element;
          });
        });
  }
}

template <typename T>
struct OutputMemory {
  TileMemory<T> tiles;
  PieceDecays<T> decays;
};

// A block computes one head of a piece.
template <typename E, typename T>
__global__ void __launch_bounds__(kThreads) WriteDeltaOutputs(GatedDeltaArgs<E> args, DeltaWork<T> work) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  OutputMemory<T>& m = *reinterpret_cast<OutputMemory<T>*>(dynamic);
  const DeltaShape& s = args.shape;
  const int64_t index = blockIdx.x / s.value_heads;
  const int64_t head = blockIdx.x % s.value_heads;
  const Piece piece(s, index);
  const DeltaHead<E, T> in(args, work, piece, index, head);
  const int tokens = piece.tokens;
  m.decays.Read(args.documents, piece, [&](int t) { return in.Sum(t); });
  const T* const state = work.states + in.state;
  Product(
      m.tiles, tokens, s.value_dim, tokens + s.key_dim,
      [&](int64_t i, int64_t k) {
        return k < tokens ? work.reads[in.matrix + i * kPiece + k]
                          : m.decays.from_before[i] * in.Q(i, k - tokens);
      },
      [&](int64_t k, int64_t p) { return k < tokens ? in.Written(k, p) : state[p * s.key_dim + k - tokens]; },
      [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
        EachInside(row, column, tokens, s.value_dim, elements, [&](int64_t i, int64_t p, T element) {
          Narrow(element, args.y[(piece.row + i) * s.values() + head * s.value_dim + p]);
        });
      });
}

}  // namespace

template <typename Args, typename T>
void LaunchDeltaStates(const Args& args, const DeltaWork<T>& work, T* kept, Stream stream) {
  using E = typename Args::Element;
  const DeltaShape& s = args.shape;
  SumDecays<<<Blocks(Pieces(s) * s.value_heads), kThreads, 0, stream>>>(args, work.sums, work.betas);
  MeasureLengths<<<Blocks(s.tokens() * s.key_heads * 32), kThreads, 0, stream>>>(args, work.of_q, work.of_k);
  LaunchWith<SolveMemory<T>>(Solve<E, Args, T>, Pieces(s) * s.value_heads, kThreads, stream, args, work);
  LaunchWith<PassMemory<T>>(PassDeltaStates<E, Args, T>, s.sequences * s.value_heads * DeltaColumns::Tiles(s),
                            kThreads, stream, args, work, kept);
}

#define TANDEM_DELTA_STATES(E)                                                                               \
  template void LaunchDeltaStates(const GatedDeltaArgs<E>&, const DeltaWork<Arithmetic<E>>&, Arithmetic<E>*, \
                                  Stream);                                                                   \
  template void LaunchDeltaStates(const GatedDeltaBackwardArgs<E>&, const DeltaWork<Arithmetic<E>>&,         \
                                  Arithmetic<E>*, Stream);
TANDEM_DELTA_STATES(float)
TANDEM_DELTA_STATES(double)
TANDEM_DELTA_STATES(Bf16)

template <typename E>
int Launch(const GatedDeltaArgs<E>& args, Stream stream) {
  if constexpr (std::is_same_v<E, Bf16>) {
    if (DeltasOnTensorCores(args.shape, sizeof(E))) {
      return LaunchTensorDelta(args, stream);
    }
  }
  using T = Arithmetic<E>;
  const DeltaShape& s = args.shape;
  const DeltaWork<T> work(s, args.work.begin);
  LaunchDeltaStates(args, work, args.states, stream);
  LaunchWith<OutputMemory<T>>(WriteDeltaOutputs<E, T>, Pieces(s) * s.value_heads, kThreads, stream, args,
                              work);
  return cudaGetLastError();
}
TANDEM_KERNEL(GatedDeltaArgs)

}  // namespace tandem::ops::cuda
