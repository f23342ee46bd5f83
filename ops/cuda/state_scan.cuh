// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/kernels.h"
#include "ops/cuda/partial_sums.cuh"
#include "ops/cuda/pieces.cuh"
#include "ops/mixer_work.h"
#include "ops/state_scan.h"

namespace tandem::ops::cuda {

// What forward and backward of the scan of a Mamba-2 mixer have in common (Dao and Gu, arXiv:2405.21060,
// section 6). In a piece (pieces.cuh), with S the state before it:
//   y_i = sum_j (C_i · B_j) L(i, j) dt_j x_j + exp(sum_i) S C_i + d x_i
// The term with S is zero if the document of i began within the piece.

// The work memory of a scan.
template <typename T>
struct ScanWork {
  __host__ __device__ ScanWork(const ScanShape& s, void* begin)
      : lengths(static_cast<T*>(begin)),
        sums(lengths + s.tokens() * s.heads),
        states(sums + s.tokens() * s.heads),
        adjoints(states + Pieces(s) * s.inner() * s.state),
        grad_bc(adjoints + Pieces(s) * s.inner() * s.state),
        partial(grad_bc + s.tokens() * 2 * s.groups * s.state) {}

  T* lengths;   // [tokens, H]: of steps
  T* sums;      // [tokens, H]
  T* states;    // [pieces, H, P, N], before each piece
  T* adjoints;  // [pieces, H, P, N]: of the states after each piece
  T* grad_bc;   // [tokens, 2 G N]
  T* partial;   // [pieces, 3 H]: the parts of the gradients of dt_bias, a_log and d
};

template <typename T>
struct Step {
  template <typename Args>
  __device__ Step(const Args& args, int64_t row, int64_t head) {
    const T raw = Widen(args.raw[row * args.raw_stride + head]) + args.dt_bias[head];
    const T softplus = raw > 20 ? raw : log1p(exp(raw));
    const T least = static_cast<T>(args.shape.least_step);
    length = softplus < least ? least : softplus;
    slope = softplus < least ? T{0} : raw > 20 ? T{1} : SigmoidOf(raw);
  }

  T length;
  T slope;
};

// Writes `lengths` and `sums` of ScanWork. A thread computes one head of a piece.
template <typename Args, typename T>
__global__ void SumSteps(Args args, T* lengths, T* sums) {
  const ScanShape s = args.shape;
  TANDEM_EACH(i, Pieces(s) * s.heads) {
    const Piece piece(s, i / s.heads);
    const int64_t head = i % s.heads;
    const T a = -exp(args.a_log[head]);
    T sum = 0;
    for (int t = 0; t < piece.tokens; ++t) {
      const Step<T> step(args, piece.row + t, head);
      sum += step.length * a;
      lengths[(piece.row + t) * s.heads + head] = step.length;
      sums[(piece.row + t) * s.heads + head] = sum;
    }
  }
}

// What a block reads of one head of a piece.
template <typename E, typename T>
struct HeadOfPiece {
  template <typename Args>
  __device__ HeadOfPiece(const Args& args, const ScanWork<T>& work, const Piece& piece, int64_t index,
                         int64_t head)
      : s(args.shape),
        channels(s.channels()),
        x(args.xbc + piece.row * channels + head * s.head_dim),
        b(args.xbc + piece.row * channels + s.inner() + head / (s.heads / s.groups) * s.state),
        c(b + s.groups * s.state),
        lengths(work.lengths + piece.row * s.heads + head),
        sums(work.sums + piece.row * s.heads + head),
        state((index * s.heads + head) * s.head_dim * s.state) {}

  __device__ T X(int64_t t, int64_t p) const { return Widen(x[t * channels + p]); }
  __device__ T B(int64_t t, int64_t n) const { return Widen(b[t * channels + n]); }
  __device__ T C(int64_t t, int64_t n) const { return Widen(c[t * channels + n]); }
  __device__ T Length(int64_t t) const { return lengths[t * s.heads]; }
  __device__ T Sum(int64_t t) const { return sums[t * s.heads]; }

  const ScanShape s;
  const int64_t channels;
  const E* x;
  const E* b;
  const E* c;
  const T* lengths;
  const T* sums;
  const int64_t state;  // the offset of its state
};

// The decays and step lengths of the tokens of a piece.
template <typename T>
struct PieceFactors : PieceDecays<T> {
  template <typename E, typename Args>
  __device__ void Read(const Args& args, const Piece& piece, const HeadOfPiece<E, T>& in) {
    for (int t = static_cast<int>(threadIdx.x); t < piece.tokens; t += kThreads) {
      lengths[t] = in.Length(t);
    }
    PieceDecays<T>::Read(args.documents, piece, [&](int t) { return in.Sum(t); });
  }

  T lengths[kPiece];
};

// products.at[i][j] = (C_i · B_j), of the tokens of a piece.
template <typename E, typename T>
__device__ void MultiplyCB(TileMemory<T>& memory, const HeadOfPiece<E, T>& in, int tokens,
                           PieceMatrix<T>& products) {
  Product(
      memory, tokens, tokens, in.s.state, [&](int64_t i, int64_t n) { return in.C(i, n); },
      [&](int64_t n, int64_t j) { return in.B(j, n); },
      [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
        EachInside(row, column, tokens, tokens, elements,
                   [&](int64_t i, int64_t j, T element) { products.at[i][j] = element; });
      });
}

// Computes what the tokens of a piece add to the state after it or, with kAdjoint, what their gradients add
// to the adjoint of the state before it. A block computes one head of a piece.
template <bool kAdjoint, typename E, typename Args, typename T>
__global__ void __launch_bounds__(kThreads) AddLocalStates(Args args, ScanWork<T> work) {
  __shared__ TileMemory<T> memory;
  __shared__ T factors[kPiece];
  const ScanShape& s = args.shape;
  const int64_t index = blockIdx.x / s.heads;
  const int64_t head = blockIdx.x % s.heads;
  const Piece piece(s, index);
  const HeadOfPiece<E, T> in(args, work, piece, index, head);
  const int last = piece.tokens - 1;
  for (int t = static_cast<int>(threadIdx.x); t < piece.tokens; t += kThreads) {
    const bool counts =
        kAdjoint ? BeganBefore(args.documents, piece, t) : StartIn(args.documents, piece, last) <= t;
    factors[t] = !counts ? T{0} : kAdjoint ? exp(in.Sum(t)) : exp(in.Sum(last) - in.Sum(t)) * in.Length(t);
  }
  __syncthreads();
  T* const to = (kAdjoint ? work.adjoints : work.states) + in.state;
  const auto of_channel = [&](int64_t p, int64_t t) {
    if constexpr (kAdjoint) {
      return factors[t] * Widen(args.grad_y[(piece.row + t) * s.inner() + head * s.head_dim + p]);
    } else {
      return factors[t] * in.X(t, p);
    }
  };
  Product(
      memory, s.head_dim, s.state, piece.tokens, of_channel,
      [&](int64_t t, int64_t n) { return kAdjoint ? in.C(t, n) : in.B(t, n); },
      [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
        EachInside(row, column, s.head_dim, s.state, elements,
                   [&](int64_t p, int64_t n, T element) { to[p * s.state + n] = element; });
      });
}

// Replaces what each piece adds by the state before the piece or, with kAdjoint, by the adjoint after it,
// passing states forwards and adjoints backwards through the pieces. A thread computes one number of the
// states of a sequence. `kept`, unless null, gets the states before chunks.
template <bool kAdjoint, typename Args, typename T>
__global__ void PassStates(Args args, ScanWork<T> work, T* kept) {
  const ScanShape& s = args.shape;
  const int64_t numbers = s.inner() * s.state;
  const int64_t pieces = PiecesOfSequence(s);
  TANDEM_EACH(i, s.sequences * numbers) {
    const int64_t sequence = i / numbers;
    const int64_t number = i % numbers;
    const int64_t head = number / (s.head_dim * s.state);
    T carried = 0;
    for (int64_t step = 0; step < pieces; ++step) {
      const int64_t index = sequence * pieces + (kAdjoint ? pieces - 1 - step : step);
      const Piece piece(s, index);
      T& local = (kAdjoint ? work.adjoints : work.states)[index * numbers + number];
      if (!kAdjoint && piece.begins_chunk && kept != nullptr) {
        kept[piece.chunk_index * numbers + number] = carried;
      }
      const T added = local;
      local = carried;
      const auto sum_of = [&](int t) { return work.sums[(piece.row + t) * s.heads + head]; };
      carried = carried * DecayOf<T>(args.documents, piece, sum_of) + added;
    }
  }
}

// Computes the states before each piece. If `kept` is not null, also writes the states before chunks to it.
template <typename E, typename Args, typename T>
void LaunchStates(const Args& args, const ScanWork<T>& work, T* kept, Stream stream) {
  const ScanShape& s = args.shape;
  const auto blocks = static_cast<unsigned>(Pieces(s) * s.heads);
  SumSteps<<<Blocks(Pieces(s) * s.heads), kThreads, 0, stream>>>(args, work.lengths, work.sums);
  AddLocalStates<false, E><<<blocks, kThreads, 0, stream>>>(args, work);
  PassStates<false><<<Blocks(s.sequences * s.inner() * s.state), kThreads, 0, stream>>>(args, work, kept);
}

// Adds up the gradients of dt_bias, a_log and d from the pieces' parts, partial: [pieces, 3 H].
template <typename Args, typename T>
void AddHeadSums(const Args& args, const T* partial, Stream stream) {
  const ScanShape& s = args.shape;
  T* const sums[] = {args.grad_dt_bias, args.grad_a_log, args.grad_d};
  for (int i = 0; i < 3; ++i) {
    AddPartialSums<<<PartialSumBlocks(s.heads), kThreads, 0, stream>>>(
        partial + i * s.heads, 3 * s.heads, Pieces(s), s.heads, /*add=*/false, sums[i]);
  }
}

}  // namespace tandem::ops::cuda
