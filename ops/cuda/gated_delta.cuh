// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/kernels.h"
#include "ops/cuda/partial_sums.cuh"
#include "ops/cuda/pieces.cuh"
#include "ops/delta_work.h"
#include "ops/gated_delta.h"

namespace tandem::ops::cuda {

// What forward and backward of a gated delta net have in common (arXiv:2412.06464, section 3.3). In a piece
// (pieces.cuh), let S be the state before it, e_i = exp(sum_i) if the document of i began before the piece,
// else 0, and u_i what token i writes to the state:
//   u_i = β_i (v_i - e_i S^T k_i - sum_{j<i} L(i, j) (k_i · k_j) u_j), a system (1 + A) U = R of the piece's
//   tokens, A(i, j) = β_i L(i, j) (k_i · k_j) for j < i, R_i = β_i (v_i - e_i S^T k_i)
//   y_i = e_i S^T q_i + sum_{j<=i} L(i, j) (q_i · k_j) u_j

// The work memory.
template <typename T>
struct DeltaWork {
  __host__ __device__ DeltaWork(const DeltaShape& s, void* begin)
      : sums(static_cast<T*>(begin)),
        betas(sums + s.tokens() * s.value_heads),
        of_q(betas + s.tokens() * s.value_heads),
        of_k(of_q + s.tokens() * s.key_heads),
        states(of_k + s.tokens() * s.key_heads),
        written(states + Pieces(s) * s.state()),
        solved(written + s.tokens() * s.values()),
        reads(solved + Pieces(s) * s.value_heads * kPiece * kPiece),
        adjoints(reads + Pieces(s) * s.value_heads * kPiece * kPiece),
        grad_right(adjoints + Pieces(s) * s.state()),
        grad_qk(grad_right + s.tokens() * s.values()),
        partial(grad_qk + s.tokens() * 2 * s.keys()) {}

  T* sums;     // [tokens, Hv]: of the logarithms of decays
  T* betas;    // [tokens, Hv]
  T* of_q;     // [tokens, Hk]: 1 / the length of a query
  T* of_k;     // [tokens, Hk]: 1 / the length of a key
  T* states;   // [pieces, Hv, Dv, Dk], before each piece
  T* written;  // [tokens, Hv, Dv]: U
  T* solved;   // [pieces, Hv, kPiece, kPiece]: the inverse of 1 + A
  T* reads;    // [pieces, Hv, kPiece, kPiece]: L(i, j) (q_i · k_j)
  // Only in the backward:
  T* adjoints;    // [pieces, Hv, Dv, Dk]: of the states after each piece
  T* grad_right;  // [tokens, Hv, Dv]: the gradient of R
  T* grad_qk;     // [tokens, 2 Hk Dk]: of queries and keys after the division by their lengths
  T* partial;     // [pieces, 2 Hv]: the parts of the gradients of dt_bias and a_log
};

// The gates of a value head at a token.
template <typename T>
struct DeltaGate {
  template <typename Args>
  __device__ DeltaGate(const Args& args, int64_t row, int64_t head) {
    const int64_t share = args.shape.share();
    const auto* const ba = args.ba + row * args.ba_stride + head / share * 2 * share + head % share;
    beta = SigmoidOf(Widen(ba[0]));
    const T raw = Widen(ba[share]) + args.dt_bias[head];
    length = raw > 20 ? raw : log1p(exp(raw));
    slope = raw > 20 ? T{1} : SigmoidOf(raw);
  }

  T beta;
  T length;  // softplus(a + dt_bias)
  T slope;   // the derivative of `length` by a
};

// A head of a piece, whose queries and keys are divided by their lengths.
template <typename E, typename T>
struct DeltaHead {
  template <typename Args>
  __device__ DeltaHead(const Args& args, const DeltaWork<T>& work, const Piece& piece, int64_t index,
                       int64_t head)
      : s(args.shape),
        scale(rsqrt(static_cast<T>(s.key_dim))),
        q(args.q + piece.row * s.keys() + head / s.share() * s.key_dim),
        k(args.k + piece.row * s.keys() + head / s.share() * s.key_dim),
        v(args.v + piece.row * s.values() + head * s.value_dim),
        of_q(work.of_q + piece.row * s.key_heads + head / s.share()),
        of_k(work.of_k + piece.row * s.key_heads + head / s.share()),
        sums(work.sums + piece.row * s.value_heads + head),
        betas(work.betas + piece.row * s.value_heads + head),
        written(work.written + piece.row * s.values() + head * s.value_dim),
        state((index * s.value_heads + head) * s.value_dim * s.key_dim),
        matrix((index * s.value_heads + head) * kPiece * kPiece) {}

  __device__ T Q(int64_t t, int64_t n) const {
    return Widen(q[t * s.keys() + n]) * of_q[t * s.key_heads] * scale;
  }
  __device__ T K(int64_t t, int64_t n) const { return Widen(k[t * s.keys() + n]) * of_k[t * s.key_heads]; }
  __device__ T V(int64_t t, int64_t p) const { return Widen(v[t * s.values() + p]); }
  __device__ T Sum(int64_t t) const { return sums[t * s.value_heads]; }
  __device__ T Beta(int64_t t) const { return betas[t * s.value_heads]; }
  __device__ T& Written(int64_t t, int64_t p) const { return written[t * s.values() + p]; }

  const DeltaShape s;
  const T scale;  // of queries
  const E* q;
  const E* k;
  const E* v;
  const T* of_q;
  const T* of_k;
  const T* sums;
  const T* betas;
  T* written;
  const int64_t state;   // the offset of its state
  const int64_t matrix;  // the offset of its parts of `solved` and `reads`
};

// Writes `sums` and `betas` of DeltaWork. A thread computes one head of a piece.
template <typename Args, typename T>
__global__ void SumDecays(Args args, T* sums, T* betas) {
  const DeltaShape s = args.shape;
  TANDEM_EACH(i, Pieces(s) * s.value_heads) {
    const Piece piece(s, i / s.value_heads);
    const int64_t head = i % s.value_heads;
    const T a = -exp(args.a_log[head]);
    T sum = 0;
    for (int t = 0; t < piece.tokens; ++t) {
      const DeltaGate<T> gate(args, piece.row + t, head);
      sum += gate.length * a;
      sums[(piece.row + t) * s.value_heads + head] = sum;
      betas[(piece.row + t) * s.value_heads + head] = gate.beta;
    }
  }
}

template <typename E, typename T = Arithmetic<E>>
__device__ T ReciprocalLength(const E* x, int64_t count) {
  T squares = 0;
  for (int64_t i = threadIdx.x % 32; i < count; i += 32) {
    squares += Widen(x[i]) * Widen(x[i]);
  }
  return rsqrt(WarpSum(squares) + static_cast<T>(kDeltaNormEpsilon));
}

// Writes of_q and of_k of DeltaWork. A warp computes one key head of a token.
template <typename Args, typename T>
__global__ void MeasureLengths(Args args, T* of_q, T* of_k) {
  const DeltaShape& s = args.shape;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32; i < s.tokens() * s.key_heads;
       i += warps) {
    const T q = ReciprocalLength(args.q + i * s.key_dim, s.key_dim);
    const T k = ReciprocalLength(args.k + i * s.key_dim, s.key_dim);
    if (threadIdx.x % 32 == 0) {
      of_q[i] = q;
      of_k[i] = k;
    }
  }
}

// Adds up the gradients of dt_bias and a_log from the pieces' parts, partial: [pieces, 2 Hv].
template <typename Args, typename T>
void AddDeltaSums(const Args& args, const T* partial, Stream stream) {
  const int64_t heads = args.shape.value_heads;
  T* const sums[] = {args.grad_dt_bias, args.grad_a_log};
  for (int i = 0; i < 2; ++i) {
    AddPartialSums<<<PartialSumBlocks(heads), kThreads, 0, stream>>>(
        partial + i * heads, 2 * heads, Pieces(args.shape), heads, /*add=*/false, sums[i]);
  }
}

// The value channels of a head whose state a block passes from piece to piece.
struct DeltaColumns {
  __device__ DeltaColumns(const DeltaShape& s, int64_t block) {
    const int64_t tiles = Tiles(s);
    sequence = block / (s.value_heads * tiles);
    head = block / tiles % s.value_heads;
    first = block % tiles * kTile;
    count = min(s.value_dim - first, static_cast<int64_t>(kTile));
  }
  static __host__ __device__ int64_t Tiles(const DeltaShape& s) { return (s.value_dim + kTile - 1) / kTile; }

  int64_t sequence;
  int64_t head;
  int64_t first;
  int64_t count;
};

// The shared memory of a block that passes states from piece to piece.
template <typename T>
struct PassMemory {
  TileMemory<T> tiles;
  PieceMatrix<T> right;  // [tokens, columns]
  PieceDecays<T> decays;
};

// Fills the work memory for all pieces, up to `reads`. If `kept` is not null, also writes the states before
// chunks to it. Defined in gated_delta.cu.
template <typename Args, typename T>
void LaunchDeltaStates(const Args& args, const DeltaWork<T>& work, T* kept, Stream stream);

}  // namespace tandem::ops::cuda
