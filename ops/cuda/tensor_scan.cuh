// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/state_scan.cuh"
#include "ops/cuda/warp_product.cuh"

// What forward and backward of the scan on tensor cores have in common; the formulas are those of
// state_scan.cuh. A block that passes states from piece to piece computes one head, for a sequence or for a
// chunk, and keeps its state in registers. Warp w of four has channels [16 w, 16 w + 16) of the state and
// tokens [16 w, 16 w + 16) of a piece.
namespace tandem::ops::cuda {

constexpr int kChannels = 64;      // of a head
constexpr int kScanThreads = 128;  // of a block that passes states on
constexpr int kBlocks = kPiece / 16;

using PieceOfChannels = SharedMatrix<kPiece, kChannels>;
using PairMatrix = SharedMatrix<kPiece, kPiece>;
template <int kState>
using PieceOfState = SharedMatrix<kPiece, kState>;  // B or C
template <int kState>
using HeadState = SharedMatrix<kChannels, kState>;
template <int kState>
using StateSums = LaneSums[kState / 8];  // a warp's [16, kState] of a state

// The work memory of a scan; that of a forward ends with `sums`.
struct TensorScanWork {
  TensorScanWork(const ScanShape& s, void* begin, bool backward)
      : states(static_cast<Bf16*>(begin)),
        adjoints(states + (backward ? Pieces(s) * s.inner() * s.state : 0)),
        lengths(reinterpret_cast<float*>(adjoints + (backward ? Pieces(s) * s.inner() * s.state : 0))),
        sums(lengths + s.tokens() * s.heads),
        partial(sums + s.tokens() * s.heads) {}

  Bf16* states;    // [pieces, H, P, N], before each piece
  Bf16* adjoints;  // [pieces, H, P, N]: of the states after each piece
  float* lengths;  // [tokens, H]: of steps
  float* sums;     // [tokens, H]
  float* partial;  // [pieces, 3 H]: the parts of the gradients of dt_bias, a_log and d
};

// Decays and step lengths of the tokens of a piece; zeros behind its end.
struct Factors {
  float sums[kPiece];
  float lengths[kPiece];
  float from_before[kPiece];  // factor of the state before the piece in a token's state
  float to_behind[kPiece];    // decay of what a token adds until the end of the piece
  float added[kPiece];        // to_behind * the step's length
  int starts[kPiece];         // start of the token's document; -1: before the piece

  // L(i, j) of pieces.cuh.
  __device__ float Decay(int i, int j) const {
    return j <= i && starts[i] <= j ? Exp(sums[i] - sums[j]) : 0.0F;
  }
};

// Reads the inputs of Factors before they are needed. Each of the first kPiece threads of a block reads one
// token, and every thread also the last token.
class FactorReader {
 public:
  template <typename Args>
  __device__ void Read(const Args& args, const TensorScanWork& work, const Piece& piece, int64_t head) {
    const int t = static_cast<int>(threadIdx.x);
    const int last = piece.tokens - 1;
    sum_of_last_ = work.sums[(piece.row + last) * args.shape.heads + head];
    start_of_last_ = StartIn(args.documents, piece, last);
    inside_ = t < piece.tokens;
    if (inside_) {
      const int64_t step = (piece.row + t) * args.shape.heads + head;
      sum_ = work.sums[step];
      length_ = work.lengths[step];
      start_ = StartIn(args.documents, piece, t);
    }
  }

  // The factor of the state before the piece in the state after it.
  __device__ float Decay() const { return start_of_last_ < 0 ? Exp(sum_of_last_) : 0.0F; }

  __device__ void Write(Factors& to) const {
    const int t = static_cast<int>(threadIdx.x);
    if (t >= kPiece) {
      return;
    }
    const float to_behind = inside_ && start_of_last_ <= t ? Exp(sum_of_last_ - sum_) : 0.0F;
    to.sums[t] = inside_ ? sum_ : 0.0F;
    to.lengths[t] = inside_ ? length_ : 0.0F;
    to.from_before[t] = inside_ && start_ < 0 ? Exp(sum_) : 0.0F;
    to.to_behind[t] = to_behind;
    to.added[t] = inside_ ? to_behind * length_ : 0.0F;
    to.starts[t] = !inside_ ? kPiece : start_ < 0 ? -1 : static_cast<int>(start_);
  }

 private:
  float sum_of_last_ = 0;
  int64_t start_of_last_ = 0;
  bool inside_ = false;
  float sum_ = 0;
  float length_ = 0;
  int64_t start_ = 0;
};

// state = state * decay + the sum over the tokens of factors[t] channels[t] ⊗ numbers[t]. The scaled channels
// are two bfloat16 each, so what is passed on is as exact as float.
template <int kState>
__device__ void PassOn(const PieceOfChannels& channels, const PieceOfState<kState>& numbers,
                       const float (&factors)[kPiece], float decay, StateSums<kState>& state) {
  const int row = static_cast<int>(threadIdx.x) / 32 * 16;
#pragma unroll
  for (auto& sums : state) {
#pragma unroll
    for (float& sum : sums) {
      sum *= decay;
    }
  }
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const ScaledFragment left(channels.LeftOfTranspose(row, block * 16), factors + block * 16);
#pragma unroll
    for (int n = 0; n < kState / 16; ++n) {
      const Fragment right = numbers.Right(block * 16, n * 16);
      AddProduct(left, right, state[2 * n], state[2 * n + 1]);
    }
  }
}

// Calls visit(channel, number, first, second) for each pair of neighbours of a lane's part of a state.
template <int kState, typename Visit>
__device__ void EachPair(StateSums<kState>& state, const Visit& visit) {
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 + RowOfLane();
#pragma unroll
  for (int n = 0; n < kState / 8; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      visit(row + 8 * half, n * 8 + ColumnOfLane(), state[n][2 * half], state[n][2 * half + 1]);
    }
  }
}

// Where a head's elements are in the rows of xbc.
struct Columns {
  __device__ Columns(const ScanShape& s, int64_t head)
      : x(head * s.head_dim),
        b(s.inner() + head / (s.heads / s.groups) * s.state),
        c(b + s.groups * s.state) {}
  int64_t x;
  int64_t b;
  int64_t c;
};

// The shared memory of a block that computes gradients.
template <int kState>
struct GradientMemory {
  PieceOfState<kState> b;
  PieceOfState<kState> c;
  PieceOfChannels x;
  PieceOfChannels grad_y;
  HeadState<kState> state;    // before the piece
  HeadState<kState> adjoint;  // of the state after the piece
  PairMatrix weights;         // L[i, j] dt_j (dy_i · x_j)
  PairMatrix products;        // L[i, j] (C_i · B_j)
  Factors factors[2];         // of this head, and of the next one
  // With W[i, j] = L[i, j] (C_i · B_j) (dy_i · x_j):
  float rows[2][kPiece];           // sum_j dt_j W[i, j], of each half of the columns
  float columns[kBlocks][kPiece];  // sum_i W[i, j], of each block of rows
  float from_before[2][kPiece];    // from_before_i (dy_i · S C_i), of each half of the state's numbers
  float to_behind[2][kPiece];      // to_behind_j (x_j · G B_j), of each half of the state's numbers
  float diagonal[kPiece];          // dy_i · x_i
  float passed[kWarps];            // <G, S>, of each warp
};

}  // namespace tandem::ops::cuda
