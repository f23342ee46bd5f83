// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/gated_delta.cuh"
#include "ops/cuda/warp_product.cuh"

// What forward and backward of a gated delta net on tensor cores have in common; the formulas are those of
// gated_delta.cuh. A block that passes states from piece to piece computes kValues value channels of one
// head, for a sequence or for a chunk, and keeps their state in registers. Warp w of eight has 16 rows from
// 16 (w % 4) on, tokens of a piece or value channels of the state, and half w / 4 of the columns.
//
// Products read queries and keys as they are given; the division by their lengths is in the factors of their
// tokens (DeltaFactors).
namespace tandem::ops::cuda {

constexpr int kValues = 64;
constexpr int kTokenBlocks = kPiece / 16;

using TokenPairs = SharedMatrix<kPiece, kPiece>;
using TokenValues = SharedMatrix<kPiece, kValues>;
template <int kKey>
using TokenKeys = SharedMatrix<kPiece, kKey>;
template <int kKey>
using ValueState = SharedMatrix<kValues, kKey>;
template <int kKey>
using ValueStateSums = LaneSums[kKey / 2 / 8];  // of a warp: 16 value channels, half of the keys' columns

__device__ inline int WarpRow() { return static_cast<int>(threadIdx.x) / 32 % kTokenBlocks * 16; }
__device__ inline int WarpHalf() { return static_cast<int>(threadIdx.x) / 32 / kTokenBlocks; }

// The work memory; that of a forward ends with of_k.
struct TensorDeltaWork {
  TensorDeltaWork(const DeltaShape& s, void* begin)
      : solved(static_cast<Bf16*>(begin)),
        reads(solved + Pieces(s) * s.value_heads * kPiece * kPiece),
        sums(reinterpret_cast<float*>(reads + Pieces(s) * s.value_heads * kPiece * kPiece)),
        betas(sums + s.tokens() * s.value_heads),
        of_q(betas + s.tokens() * s.value_heads),
        of_k(of_q + s.tokens() * s.key_heads),
        partial(of_k + s.tokens() * s.key_heads) {}

  // The work memory of a backward. Matrices of bfloat16 are first, so that they begin at multiples of 16
  // bytes.
  static TensorDeltaWork OfBackward(const DeltaShape& s, void* begin) {
    Bf16* const states = static_cast<Bf16*>(begin);
    Bf16* const adjoints = states + Pieces(s) * s.state();
    Bf16* const written = adjoints + Pieces(s) * s.state();
    Bf16* const grad_right = written + s.tokens() * s.values();
    TensorDeltaWork work(s, grad_right + s.tokens() * s.values());
    work.states = states;
    work.adjoints = adjoints;
    work.written = written;
    work.grad_right = grad_right;
    return work;
  }

  Bf16* solved;  // [pieces, Hv, kPiece, kPiece]: the inverse of 1 + A
  Bf16* reads;   // [pieces, Hv, kPiece, kPiece]: L(i, j) (q_i · k_j)
  float* sums;   // [tokens, Hv]: of the logarithms of decays
  float* betas;  // [tokens, Hv]
  float* of_q;   // [tokens, Hk]: 1 / the length of a query
  float* of_k;   // [tokens, Hk]: 1 / the length of a key
  // Only in the backward:
  float* partial;              // [pieces, 2 Hv]: the parts of the gradients of dt_bias and a_log
  Bf16* states = nullptr;      // [pieces, Hv, Dv, Dk], before each piece
  Bf16* adjoints = nullptr;    // [pieces, Hv, Dv, Dk]: of the states after each piece
  Bf16* written = nullptr;     // [tokens, Hv, Dv]: U
  Bf16* grad_right = nullptr;  // [tokens, Hv, Dv]: the gradient of R
};

// Numbers of each token of a piece; zeros behind its end.
struct DeltaFactors {
  float sums[kPiece];
  float betas[kPiece];
  float of_q[kPiece];         // 1 / (the length of the query * sqrt(Dk))
  float of_k[kPiece];         // 1 / the length of the key
  float from_before[kPiece];  // factor of the state before the piece in a token's state
  float to_behind[kPiece];    // factor of what a token writes in the state after the piece
  // Products of these:
  float read_by_q[kPiece];     // from_before * of_q
  float missed_by_k[kPiece];   // -β * from_before * of_k
  float written_by_k[kPiece];  // to_behind * of_k
  int starts[kPiece];          // start of the token's document; -1: before the piece

  // L(i, j) of pieces.cuh.
  __device__ float Decay(int i, int j) const {
    return j <= i && starts[i] <= j ? Exp(sums[i] - sums[j]) : 0.0F;
  }
};

// Reads the inputs of DeltaFactors before they are needed. Each of the first kPiece threads reads one token,
// and every thread also the last token.
class DeltaFactorReader {
 public:
  // thread: its index among the threads that read this head.
  template <typename Args>
  __device__ void Read(const Args& args, const TensorDeltaWork& work, const Piece& piece, int64_t head,
                       int thread) {
    const DeltaShape& s = args.shape;
    const int last = piece.tokens - 1;
    thread_ = thread;
    sum_of_last_ = work.sums[(piece.row + last) * s.value_heads + head];
    start_of_last_ = StartIn(args.documents, piece, last);
    inside_ = thread < piece.tokens;
    if (inside_) {
      const int64_t row = piece.row + thread;
      sum_ = work.sums[row * s.value_heads + head];
      beta_ = work.betas[row * s.value_heads + head];
      of_q_ = work.of_q[row * s.key_heads + head / s.share()] * rsqrtf(static_cast<float>(s.key_dim));
      of_k_ = work.of_k[row * s.key_heads + head / s.share()];
      start_ = StartIn(args.documents, piece, thread);
    }
  }

  // The factor of the state before the piece in the state after it.
  __device__ float Decay() const { return start_of_last_ < 0 ? Exp(sum_of_last_) : 0.0F; }

  __device__ void Write(DeltaFactors& to) const {
    const int t = thread_;
    if (t >= kPiece) {
      return;
    }
    const float from_before = inside_ && start_ < 0 ? Exp(sum_) : 0.0F;
    const float to_behind = inside_ && start_of_last_ <= t ? Exp(sum_of_last_ - sum_) : 0.0F;
    to.sums[t] = inside_ ? sum_ : 0.0F;
    to.betas[t] = inside_ ? beta_ : 0.0F;
    to.of_q[t] = inside_ ? of_q_ : 0.0F;
    to.of_k[t] = inside_ ? of_k_ : 0.0F;
    to.from_before[t] = from_before;
    to.to_behind[t] = to_behind;
    to.read_by_q[t] = inside_ ? from_before * of_q_ : 0.0F;
    to.missed_by_k[t] = inside_ ? -beta_ * from_before * of_k_ : 0.0F;
    to.written_by_k[t] = inside_ ? to_behind * of_k_ : 0.0F;
    to.starts[t] = !inside_ ? kPiece : start_ < 0 ? -1 : static_cast<int>(start_);
  }

 private:
  int thread_ = 0;
  float sum_of_last_ = 0;
  int64_t start_of_last_ = 0;
  bool inside_ = false;
  float sum_ = 0;
  float beta_ = 0;
  float of_q_ = 0;
  float of_k_ = 0;
  int64_t start_ = 0;
};

// The tokens of a piece in a block that passes states on: what it needs to write to the state.
template <int kKey>
struct WritingTokens {
  TokenKeys<kKey> k;
  TokenValues values;  // of the tokens, or the gradients of outputs
  TokenPairs solved;
};
// The same, and what it needs to read the state.
template <int kKey>
struct ReadingTokens : WritingTokens<kKey> {
  TokenKeys<kKey> q;
  TokenPairs reads;
};

// The shared memory of a block that passes states or adjoints on.
template <int kKey, typename Tokens = ReadingTokens<kKey>>
struct DeltaPassMemory {
  Tokens tokens[2];  // one piece is used, the next is on its way
  ValueState<kKey> state;
  TokenValues written;
  DeltaFactors factors[2];
};

// The shared memory of a block that computes gradients.
template <int kKey>
struct TensorDeltaMemory {
  struct Tile {  // of kValues value channels
    TokenValues grad_y;
    TokenValues grad_right;
    TokenValues written;
    ValueState<kKey> state;    // before the piece
    ValueState<kKey> adjoint;  // of the state after the piece
  };
  struct Pairs {                       // of_reads and of_keys include the factors of queries and keys
    TokenPairs of_reads;               // L(i, j) (dy_i · u_j)
    TokenPairs of_keys;                // -β_i L(i, j) (dR_i · u_j) for j < i
    float passed[kPiece][kPiece + 1];  // the gradient of log L(i, j), for j < i
  };

  TokenKeys<kKey> k;
  TokenKeys<kKey> q;
  union {
    Tile tile;
    Pairs pairs;
  };
  DeltaFactors factors;
  float quarters[4][kPiece];  // of j: the sum of `passed` over a quarter of the tokens i
  // Of each half of the columns:
  float from_before[2][kPiece];     // the gradient of sum_i, through the state before the piece
  float to_behind[2][kPiece];       // the gradient of -sum_j, through the state after the piece
  float read_of_state[2][kPiece];   // k_i · (its gradient as a reader of the state), without β_i
  float read_of_tokens[2][kPiece];  // the same as a reader of what tokens of the piece write
  float of_values[kPiece];          // dR_i · v_i
  float within[kPiece];             // the sum of `passed` over the pairs j < t <= i, for token t
  float passed_on[kWarps];          // <G, S>, of each warp
};

// Rounds a warp's sums, of its rows, into the columns [column, ...) of a matrix in shared memory.
template <int kTiles, typename Matrix>
__device__ void RoundInto(const LaneSums (&sums)[kTiles], int column, Matrix& to) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      *reinterpret_cast<unsigned*>(
          &to.at[WarpRow() + RowOfLane() + 8 * k][column + tile * 8 + ColumnOfLane()]) =
          PairOf(sums[tile][2 * k], sums[tile][2 * k + 1]);
    }
  }
}

// Rounds a warp's sums into rows of global memory that are row_stride apart, up to row `rows`.
template <int kTiles>
__device__ void RoundInto(const LaneSums (&sums)[kTiles], int rows, int64_t row_stride, Bf16* to) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int row = WarpRow() + RowOfLane() + 8 * k;
      if (row < rows) {
        *reinterpret_cast<unsigned*>(to + row * row_stride + tile * 8 + ColumnOfLane()) =
            PairOf(sums[tile][2 * k], sums[tile][2 * k + 1]);
      }
    }
  }
}

// Multiplies a warp's rows, each by its factor.
template <int kTiles>
__device__ void ScaleRows(const float (&factors)[kPiece], LaneSums (&sums)[kTiles]) {
#pragma unroll
  for (auto& of_tile : sums) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      of_tile[k] *= factors[WarpRow() + RowOfLane() + k / 2 * 8];
    }
  }
}

// sums += left * right[k ... k + 16, column ...].
template <int kTiles, typename Left, typename Matrix>
__device__ void AddRowsOf(const Left& left, const Matrix& right, int k, int column,
                          LaneSums (&sums)[kTiles]) {
#pragma unroll
  for (int tile = 0; tile < kTiles; tile += 2) {
    AddProduct(left, right.Right(k, column + tile * 8), sums[tile], sums[tile + 1]);
  }
}

// sums += left * transpose(right[column ..., k ... k + 16]).
template <int kTiles, typename Left, typename Matrix>
__device__ void AddColumnsOf(const Left& left, const Matrix& right, int k, int column,
                             LaneSums (&sums)[kTiles]) {
#pragma unroll
  for (int tile = 0; tile < kTiles; tile += 2) {
    AddProduct(left, right.RightOfTranspose(k, column + tile * 8), sums[tile], sums[tile + 1]);
  }
}

// state += the sum over the tokens of factors[t] values[t] ⊗ keys[t].
template <int kKey>
__device__ void AddToState(const TokenValues& values, const TokenKeys<kKey>& keys,
                           const float (&factors)[kPiece], ValueStateSums<kKey>& state) {
#pragma unroll
  for (int block = 0; block < kTokenBlocks; ++block) {
    const ScaledFragment left(values.LeftOfTranspose(WarpRow(), block * 16), factors + block * 16);
    AddRowsOf(left, keys, block * 16, WarpHalf() * (kKey / 2), state);
  }
}

// Fills the work memory for all pieces, from `solved` to of_k. Defined in tensor_delta.cu.
template <typename Args>
void LaunchTensorMatrices(const Args& args, const TensorDeltaWork& work, Stream stream);

}  // namespace tandem::ops::cuda
