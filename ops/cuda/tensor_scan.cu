// SPDX-License-Identifier: Apache-2.0
// The scan of Mamba-2 mixers on tensor cores: the sums of state_scan.cu. A block that passes states on has
// one head of a sequence, or of a chunk, and holds the state in registers; warp w of four has channels [16 w,
// 16 w + 16) of it and tokens [16 w, 16 w + 16) of a piece.
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <initializer_list>

#include "ops/cuda/gpu_attributes.h"
#include "ops/cuda/state_scan.cuh"
#include "ops/cuda/tensor_scan.h"
#include "ops/cuda/warp_product.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kChannels = 64;      // of a head
constexpr int kScanThreads = 128;  // that pass states on
constexpr int kBlocks = kPiece / 16;

using PieceOfChannels = SharedMatrix<kPiece, kChannels>;
using PairMatrix = SharedMatrix<kPiece, kPiece>;
template <int kState>
using PieceOfState = SharedMatrix<kPiece, kState>;  // B or C
template <int kState>
using HeadState = SharedMatrix<kChannels, kState>;
template <int kState>
using StateSums = LaneSums[kState / 8];  // a warp's [16, kState] of a state

// Starts to copy `rows` rows, row_stride apart, into the first rows of a matrix; the others become zeros.
template <int kThreadsOfBlock, int kRows, int kColumns>
__device__ void StartCopy(const Bf16* from, int64_t row_stride, int rows, SharedMatrix<kRows, kColumns>& to) {
  constexpr int kPacks = kColumns / 8;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kPacks; i += kThreadsOfBlock) {
    const int row = i / kPacks;
    const int column = i % kPacks * 8;
    const bool inside = row < rows;
    __pipeline_memcpy_async(&to.at[row][column], inside ? from + row * row_stride + column : from, 16,
                            inside ? 0 : 16);
  }
}

// What the tokens of a piece have from the sums of their steps; zeros behind its end.
struct Factors {
  float sums[kPiece];
  float lengths[kPiece];
  float from_before[kPiece];  // of the state before the piece, in a token's
  float to_behind[kPiece];    // of what a token adds by a step of length 1, in the state behind the piece
  float added[kPiece];        // to_behind by the step's length
  int starts[kPiece];         // of the token's document; -1: before the piece

  // L of a token i and one before it, j.
  __device__ float Decay(int i, int j) const {
    return j <= i && starts[i] <= j ? Exp(sums[i] - sums[j]) : 0.0F;
  }
};

// Reads what Factors are computed from ahead of their use: each of the first kPiece threads of a block has a
// token, and every thread the last one.
class FactorReader {
 public:
  template <typename Args>
  __device__ void Read(const Args& args, const ScanWork<float>& work, const Piece& piece, int64_t head) {
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

  // How much of the state before the piece is in the one behind it.
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
    const Fragment plain = channels.LeftOfTranspose(row, block * 16);
    Fragment high;
    Fragment low;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = block * 16 + i / 2 * 8 + ColumnOfLane();
      const float2 pair = FloatsOf(plain.pairs[i]);
      const float first = pair.x * factors[token];
      const float second = pair.y * factors[token + 1];
      high.pairs[i] = PairOf(first, second);
      const float2 rounded = FloatsOf(high.pairs[i]);
      low.pairs[i] = PairOf(first - rounded.x, second - rounded.y);
    }
#pragma unroll
    for (int n = 0; n < kState / 16; ++n) {
      const Fragment right = numbers.Right(block * 16, n * 16);
      AddProduct(high, right, state[2 * n], state[2 * n + 1]);
      AddProduct(low, right, state[2 * n], state[2 * n + 1]);
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

template <int kState>
struct ForwardMemory {
  struct Tokens {
    PieceOfChannels x;
    PieceOfState<kState> b;
    PieceOfState<kState> c;
  } tokens[2];  // one piece is used, the next is on its way
  HeadState<kState> state;
  Factors factors;
};

// A block has a head of a sequence, piece after piece.
template <int kState>
__global__ void __launch_bounds__(kScanThreads, 2)
    ScanForward(StateScanArgs<Bf16> args, ScanWork<float> work) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  auto& memory = *reinterpret_cast<ForwardMemory<kState>*>(dynamic);
  const ScanShape& s = args.shape;
  const int64_t sequence = blockIdx.x / s.heads;
  const int64_t head = blockIdx.x % s.heads;
  const int64_t pieces = PiecesOfSequence(s);
  const Columns columns(s, head);
  const float d = args.d[head];
  const int row = static_cast<int>(threadIdx.x) / 32 * 16;
  const auto start = [&](const Piece& piece, auto& tokens) {
    const Bf16* const from = args.xbc + piece.row * s.channels();
    StartCopy<kScanThreads>(from + columns.x, s.channels(), piece.tokens, tokens.x);
    StartCopy<kScanThreads>(from + columns.b, s.channels(), piece.tokens, tokens.b);
    StartCopy<kScanThreads>(from + columns.c, s.channels(), piece.tokens, tokens.c);
  };

  StateSums<kState> state = {};
  FactorReader reader;
  Piece piece(s, sequence * pieces);
  reader.Read(args, work, piece, head);
  start(piece, memory.tokens[0]);
  for (int64_t index = 0; index < pieces && piece.tokens > 0; ++index) {
    if (piece.begins_chunk) {
      float* const kept = args.states + (piece.chunk_index * s.heads + head) * kChannels * kState;
      EachPair<kState>(state, [&](int p, int n, float first, float second) {
        *reinterpret_cast<float2*>(kept + p * kState + n) = {first, second};
      });
    }
    EachPair<kState>(state, [&](int p, int n, float first, float second) {
      *reinterpret_cast<unsigned*>(&memory.state.at[p][n]) = PairOf(first, second);
    });
    const float decay = reader.Decay();
    reader.Write(memory.factors);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    const auto& tokens = memory.tokens[index % 2];
    const Piece next(s, sequence * pieces + min(index + 1, pieces - 1));
    if (index + 1 < pieces && next.tokens > 0) {
      reader.Read(args, work, next, head);
      start(next, memory.tokens[(index + 1) % 2]);
    }

    const Factors& factors = memory.factors;
    const int i = row + RowOfLane();  // of a lane's first row
    LaneSums y[kChannels / 8] = {};
    Fragment c[kState / 16];
#pragma unroll
    for (int n = 0; n < kState / 16; ++n) {
      c[n] = tokens.c.Left(row, n * 16);
#pragma unroll
      for (int p = 0; p < kChannels / 16; ++p) {
        AddProduct(c[n], memory.state.RightOfTranspose(n * 16, p * 16), y[2 * p], y[2 * p + 1]);
      }
    }
#pragma unroll
    for (auto& sums : y) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        sums[k] *= factors.from_before[i + k / 2 * 8];
      }
    }
    for (int block = 0; block * 16 <= row; ++block) {
      LaneSums weights[2] = {};
#pragma unroll
      for (int n = 0; n < kState / 16; ++n) {
        AddProduct(c[n], tokens.b.RightOfTranspose(n * 16, block * 16), weights[0], weights[1]);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int j = block * 16 + half * 8 + ColumnOfLane() + k % 2;
          weights[half][k] *= factors.Decay(i + k / 2 * 8, j) * factors.lengths[j];
        }
      }
      const Fragment left = AsLeft(weights[0], weights[1]);
#pragma unroll
      for (int p = 0; p < kChannels / 16; ++p) {
        AddProduct(left, tokens.x.Right(block * 16, p * 16), y[2 * p], y[2 * p + 1]);
      }
    }
#pragma unroll
    for (int p = 0; p < kChannels / 8; ++p) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int t = i + 8 * half;
        const int column = p * 8 + ColumnOfLane();
        if (t < piece.tokens) {
          const float2 x = FloatsOf(*reinterpret_cast<const unsigned*>(&tokens.x.at[t][column]));
          *reinterpret_cast<unsigned*>(args.y + (piece.row + t) * s.inner() + columns.x + column) =
              PairOf(y[p][2 * half] + d * x.x, y[p][2 * half + 1] + d * x.y);
        }
      }
    }

    PassOn<kState>(tokens.x, tokens.b, factors.added, decay, state);
    __syncthreads();
    piece = next;
  }
}

template <int kState>
struct PassMemory {
  struct Tokens {
    PieceOfChannels channels;
    PieceOfState<kState> numbers;
  } tokens[2];
  Factors factors;
};

// The states before the pieces of a chunk of a head, from the one that the forward kept; or with kAdjoint the
// adjoints of those behind the pieces of a sequence, from the last to the first, from zeros.
// Both are rounded: to[piece, head, kChannels, kState].
template <bool kAdjoint, int kState>
__global__ void __launch_bounds__(kScanThreads, 3)
    WriteStates(StateScanBackwardArgs<Bf16> args, ScanWork<float> work, Bf16* to) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  auto& memory = *reinterpret_cast<PassMemory<kState>*>(dynamic);
  const ScanShape& s = args.shape;
  const int64_t head = blockIdx.x % s.heads;
  const int64_t pieces = kAdjoint ? PiecesOfSequence(s) : PiecesOfChunk(s);
  const int64_t first = blockIdx.x / s.heads * pieces;
  const Columns columns(s, head);
  const auto at = [&](int64_t step) { return first + (kAdjoint ? pieces - 1 - step : step); };
  const auto start = [&](const Piece& piece, auto& tokens) {
    const Bf16* const from = args.xbc + piece.row * s.channels();
    if constexpr (kAdjoint) {
      StartCopy<kScanThreads>(args.grad_y + piece.row * s.inner() + columns.x, s.inner(), piece.tokens,
                              tokens.channels);
      StartCopy<kScanThreads>(from + columns.c, s.channels(), piece.tokens, tokens.numbers);
    } else {
      StartCopy<kScanThreads>(from + columns.x, s.channels(), piece.tokens, tokens.channels);
      StartCopy<kScanThreads>(from + columns.b, s.channels(), piece.tokens, tokens.numbers);
    }
  };

  int64_t step = 0;
  if constexpr (kAdjoint) {  // pieces behind the end
    while (Piece(s, at(step)).tokens == 0) {
      ++step;
    }
  }
  Piece piece(s, at(step));
  StateSums<kState> state = {};
  if constexpr (!kAdjoint) {
    const float* const kept = args.states + (piece.chunk_index * s.heads + head) * kChannels * kState;
    EachPair<kState>(state, [&](int p, int n, float& one, float& other) {
      const float2 pair = *reinterpret_cast<const float2*>(kept + p * kState + n);
      one = pair.x;
      other = pair.y;
    });
  }
  FactorReader reader;
  const auto read = [&] {
    reader.Read(args, work, piece, head);
    start(piece, memory.tokens[step % 2]);
  };
  if (step + 1 < pieces) {
    read();
  }
  for (;;) {
    Bf16* const rounded = to + (at(step) * s.heads + head) * kChannels * kState;
    EachPair<kState>(state, [&](int p, int n, float one, float other) {
      *reinterpret_cast<unsigned*>(rounded + p * kState + n) = PairOf(one, other);
    });
    if (step + 1 == pieces) {
      return;
    }
    const float decay = reader.Decay();
    reader.Write(memory.factors);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    const auto& tokens = memory.tokens[step % 2];
    piece = Piece(s, at(++step));
    if (piece.tokens == 0) {
      return;
    }
    if (step + 1 < pieces) {
      read();
    }
    PassOn<kState>(tokens.channels, tokens.numbers,
                   kAdjoint ? memory.factors.from_before : memory.factors.added, decay, state);
    __syncthreads();
  }
}

template <int kState>
struct GradientMemory {
  PieceOfState<kState> b;
  PieceOfState<kState> c;
  PieceOfChannels x;
  PieceOfChannels grad_y;
  HeadState<kState> state;    // before the piece
  HeadState<kState> adjoint;  // of that behind it
  PairMatrix weights;         // L[i, j] dt_j (dy_i · x_j)
  PairMatrix products;        // L[i, j] (C_i · B_j)
  Factors factors[2];         // of this head, and of the next one
  // With W[i, j] = L[i, j] (C_i · B_j) (dy_i · x_j):
  float rows[2][kPiece];           // sum_j dt_j W[i, j], of each half of the columns
  float columns[kBlocks][kPiece];  // sum_i W[i, j], of each block of rows
  float from_before[2][kPiece];    // dy_i · S C_i by the factor, of each half of the state's numbers
  float to_behind[2][kPiece];      // x_j · G B_j by the factor, likewise
  float diagonal[kPiece];          // dy_i · x_i
  float passed[kWarps];            // <G, S>, of each warp
};

// A block has a group of heads of a piece, one after the other. Warp w of eight has tokens [16 (w % 4), ...)
// and half w / 4 of the columns.
template <int kState>
class GradientBlock {
 public:
  __device__ GradientBlock(const StateScanBackwardArgs<Bf16>& args, const ScanWork<float>& work,
                           const Bf16* states, const Bf16* adjoints, GradientMemory<kState>& memory,
                           const Piece& piece, int64_t index)
      : args_(args),
        s_(args.shape),
        work_(work),
        states_(states),
        adjoints_(adjoints),
        m_(memory),
        piece_(piece),
        index_(index),
        row_(Warp() % kBlocks * 16),
        half_(Warp() / kBlocks) {}

  __device__ void Run(int64_t group) {
    const int64_t share = s_.heads / s_.groups;
    const Columns columns(s_, group * share);
    const Bf16* const from = args_.xbc + piece_.row * s_.channels();
    StartCopy<kThreads>(from + columns.b, s_.channels(), piece_.tokens, m_.b);
    StartCopy<kThreads>(from + columns.c, s_.channels(), piece_.tokens, m_.c);
    FactorReader reader;
    StartHead(group * share, reader);
    for (int64_t i = 0; i < share; ++i) {
      const int64_t head = group * share + i;
      const float decay = reader.Decay();
      factors_ = &m_.factors[i % 2];
      reader.Write(m_.factors[i % 2]);
      __pipeline_commit();
      __pipeline_wait_prior(0);
      __syncthreads();
      WriteWeights();
      SumPassed();
      __syncthreads();
      AddGradC();
      AddGradB();
      WriteGradX(head);
      __syncthreads();
      if (i + 1 < share) {
        StartHead(head + 1, reader);
      }
      if (Warp() == 0) {
        FinishHead(head, decay);
      }
    }
    Bf16* const to = args_.grad_xbc + piece_.row * s_.channels() + half_ * (kState / 2);
    Store(grad_b_, to + columns.b);
    Store(grad_c_, to + columns.c);
  }

 private:
  static constexpr int kTiles = kState / 2 / 8;  // of 8 columns, of a warp's half of the state's numbers
  static __device__ int Warp() { return static_cast<int>(threadIdx.x) / 32; }

  __device__ void StartHead(int64_t head, FactorReader& reader) const {
    const Columns columns(s_, head);
    const int64_t state = (index_ * s_.heads + head) * kChannels * kState;
    StartCopy<kThreads>(args_.xbc + piece_.row * s_.channels() + columns.x, s_.channels(), piece_.tokens,
                        m_.x);
    StartCopy<kThreads>(args_.grad_y + piece_.row * s_.inner() + columns.x, s_.inner(), piece_.tokens,
                        m_.grad_y);
    StartCopy<kThreads>(states_ + state, kState, kChannels, m_.state);
    StartCopy<kThreads>(adjoints_ + state, kState, kChannels, m_.adjoint);
    reader.Read(args_, work_, piece_, head);
  }

  // The two matrices of weights, and what their product W adds to the sums of its rows and columns.
  __device__ void WriteWeights() {
    const int i = row_ + RowOfLane();
    LaneSums of_c[4] = {};
    LaneSums of_y[4] = {};
    const bool below = half_ * 32 <= row_ + 15;
    if (below) {
#pragma unroll
      for (int n = 0; n < kState / 16; ++n) {
        const Fragment c = m_.c.Left(row_, n * 16);
#pragma unroll
        for (int block = 0; block < 2; ++block) {
          AddProduct(c, m_.b.RightOfTranspose(n * 16, half_ * 32 + block * 16), of_c[2 * block],
                     of_c[2 * block + 1]);
        }
      }
#pragma unroll
      for (int p = 0; p < kChannels / 16; ++p) {
        const Fragment y = m_.grad_y.Left(row_, p * 16);
#pragma unroll
        for (int block = 0; block < 2; ++block) {
          AddProduct(y, m_.x.RightOfTranspose(p * 16, half_ * 32 + block * 16), of_y[2 * block],
                     of_y[2 * block + 1]);
        }
      }
    }
    float rows[2] = {};
#pragma unroll
    for (int tile = 0; tile < 4; ++tile) {
      const int j = half_ * 32 + tile * 8 + ColumnOfLane();
      float columns[2] = {};
      float weights[4];
      float products[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int row = i + k / 2 * 8;
        const int column = j + k % 2;
        const float decay = factors_->Decay(row, column);
        const float length = factors_->lengths[column];
        const float both = of_c[tile][k] * of_y[tile][k] * decay;
        weights[k] = of_y[tile][k] * decay * length;
        products[k] = of_c[tile][k] * decay;
        rows[k / 2] += both * length;
        columns[k % 2] += both;
        if (row == column) {
          m_.diagonal[row] = of_y[tile][k];
        }
      }
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        *reinterpret_cast<unsigned*>(&m_.weights.at[i + 8 * k][j]) =
            PairOf(weights[2 * k], weights[2 * k + 1]);
        *reinterpret_cast<unsigned*>(&m_.products.at[i + 8 * k][j]) =
            PairOf(products[2 * k], products[2 * k + 1]);
        const float sum = ColumnSum(columns[k]);
        if (RowOfLane() == 0) {
          m_.columns[row_ / 16][j + k] = sum;
        }
      }
    }
    WriteRows(rows, m_.rows[half_]);
  }

  // The sums of a lane's two rows over the lanes that have them.
  __device__ void WriteRows(const float (&sums)[2], float* to) const {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const float sum = RowSum(sums[k]);
      if (ColumnOfLane() == 0) {
        to[row_ + RowOfLane() + 8 * k] = sum;
      }
    }
  }

  __device__ void SumPassed() {
    constexpr int kPairs = kState / 2;
    float sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < kChannels * kPairs; i += kThreads) {
      const float2 s = FloatsOf(*reinterpret_cast<const unsigned*>(&m_.state.at[i / kPairs][i % kPairs * 2]));
      const float2 g =
          FloatsOf(*reinterpret_cast<const unsigned*>(&m_.adjoint.at[i / kPairs][i % kPairs * 2]));
      sum += s.x * g.x + s.y * g.y;
    }
    sum = WarpSum(sum);
    if (LaneOf() == 0) {
      m_.passed[Warp()] = sum;
    }
  }

  // dC_i = sum_j weights[i, j] B_j + what comes through the state before the piece.
  __device__ void AddGradC() {
    for (int block = 0; block * 16 <= row_; ++block) {
      AddRows(m_.weights.Left(row_, block * 16), m_.b, block * 16, grad_c_);
    }
    float sums[2] = {};
    AddThroughState(m_.grad_y, m_.state, m_.c, factors_->from_before, /*lengths=*/nullptr, grad_c_, sums);
    WriteRows(sums, m_.from_before[half_]);
  }

  // dB_j = sum_i weights[i, j] C_i + what comes through the adjoint of the state behind the piece.
  __device__ void AddGradB() {
#pragma unroll 1
    for (int block = row_ / 16; block < kBlocks; ++block) {
      AddRows(m_.weights.LeftOfTranspose(row_, block * 16), m_.c, block * 16, grad_b_);
    }
    float sums[2] = {};
    AddThroughState(m_.x, m_.adjoint, m_.b, factors_->to_behind, factors_->lengths, grad_b_, sums);
    WriteRows(sums, m_.to_behind[half_]);
  }

  // to += left by the rows [k, k + 16) of the warp's half of `numbers`.
  __device__ void AddRows(const Fragment& left, const PieceOfState<kState>& numbers, int k,
                          LaneSums (&to)[kTiles]) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; tile += 2) {
      AddProduct(left, numbers.Right(k, half_ * (kState / 2) + tile * 8), to[tile], to[tile + 1]);
    }
  }

  // Of each token t of the warp: v = factors[t] (the matrix applied to its channels); to += v, by its length
  // if there are lengths; sums += v · its numbers.
  __device__ void AddThroughState(const PieceOfChannels& channels, const HeadState<kState>& matrix,
                                  const PieceOfState<kState>& numbers, const float* factors,
                                  const float* lengths, LaneSums (&to)[kTiles], float (&sums)[2]) const {
    const int t = row_ + RowOfLane();
    Fragment left[kChannels / 16];
#pragma unroll
    for (int p = 0; p < kChannels / 16; ++p) {
      left[p] = channels.Left(row_, p * 16);
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; tile += 2) {
      const int column = half_ * (kState / 2) + tile * 8;
      LaneSums v[2] = {};
#pragma unroll
      for (int p = 0; p < kChannels / 16; ++p) {
        AddProduct(left[p], matrix.Right(p * 16, column), v[0], v[1]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int row = t + 8 * k;
          const float2 of_token =
              FloatsOf(*reinterpret_cast<const unsigned*>(&numbers.at[row][column + i * 8 + ColumnOfLane()]));
          const float first = v[i][2 * k] * factors[row];
          const float second = v[i][2 * k + 1] * factors[row];
          sums[k] += first * of_token.x + second * of_token.y;
          const float length = lengths == nullptr ? 1.0F : lengths[row];
          to[tile + i][2 * k] += first * length;
          to[tile + i][2 * k + 1] += second * length;
        }
      }
    }
  }

  // dx_j = dt_j (sum_i products[i, j] dy_i + to_behind_j G B_j) + d dy_j.
  __device__ void WriteGradX(int64_t head) const {
    const int64_t column_of_head = Columns(s_, head).x;
    const int column = half_ * (kChannels / 2);
    LaneSums through[4] = {};
#pragma unroll
    for (int n = 0; n < kState / 16; ++n) {
      const Fragment b = m_.b.Left(row_, n * 16);
#pragma unroll
      for (int tile = 0; tile < 4; tile += 2) {
        AddProduct(b, m_.adjoint.RightOfTranspose(n * 16, column + tile * 8), through[tile],
                   through[tile + 1]);
      }
    }
    const int j = row_ + RowOfLane();
#pragma unroll
    for (auto& sums : through) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        sums[k] *= factors_->to_behind[j + k / 2 * 8];
      }
    }
#pragma unroll 1
    for (int block = row_ / 16; block < kBlocks; ++block) {
      const Fragment products = m_.products.LeftOfTranspose(row_, block * 16);
#pragma unroll
      for (int tile = 0; tile < 4; tile += 2) {
        AddProduct(products, m_.grad_y.Right(block * 16, column + tile * 8), through[tile],
                   through[tile + 1]);
      }
    }
    const float d = args_.d[head];
#pragma unroll
    for (int tile = 0; tile < 4; ++tile) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int t = j + 8 * k;
        const int at = column + tile * 8 + ColumnOfLane();
        if (t < piece_.tokens) {
          const float2 y = FloatsOf(*reinterpret_cast<const unsigned*>(&m_.grad_y.at[t][at]));
          const float length = factors_->lengths[t];
          *reinterpret_cast<unsigned*>(args_.grad_xbc + (piece_.row + t) * s_.channels() + column_of_head +
                                       at) =
              PairOf(length * through[tile][2 * k] + d * y.x, length * through[tile][2 * k + 1] + d * y.y);
        }
      }
    }
  }

  // The gradient of a token's exponent is that of all that decays through it: the states before the piece in
  // those behind it and in the tokens from it on, what the tokens before it add to the state behind, and W of
  // those pairs. The first token of a document decays nothing. A lane has two tokens.
  __device__ void FinishHead(int64_t head, float decay) const {
    float passed = 0;
    for (const float of_warp : m_.passed) {
      passed += of_warp;
    }
    float through[2];  // x_j · G B_j by its factor
    float columns[2];
    float to_behind[2];
    float behind[2];  // what decays through this token, of the tokens from it on
    float of_diagonal = 0;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int t = LaneOf() * 2 + k;
      columns[k] = 0;
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        columns[k] += m_.columns[block][t];
      }
      through[k] = m_.to_behind[0][t] + m_.to_behind[1][t];
      const float length = factors_->lengths[t];
      to_behind[k] = length * through[k];
      behind[k] =
          m_.from_before[0][t] + m_.from_before[1][t] + m_.rows[0][t] + m_.rows[1][t] - length * columns[k];
      of_diagonal += t < piece_.tokens ? m_.diagonal[t] : 0.0F;
    }
    float before = to_behind[0] + to_behind[1];  // of the tokens up to a lane's
    float rest = behind[0] + behind[1];          // of those from a lane's on
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const float of_before = __shfl_up_sync(kEveryLane, before, lanes);
      const float of_rest = __shfl_down_sync(kEveryLane, rest, lanes);
      before += LaneOf() >= lanes ? of_before : 0.0F;
      rest += LaneOf() + lanes < 32 ? of_rest : 0.0F;
    }
    const float a = -Exp(args_.a_log[head]);
    float of_bias = 0;
    float of_a = 0;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int t = LaneOf() * 2 + k;
      if (t >= piece_.tokens) {
        continue;
      }
      const float earlier = before - to_behind[1] - (k == 0 ? to_behind[0] : 0.0F);
      const float later = rest - (k == 1 ? behind[0] : 0.0F);
      const float of_decay = factors_->starts[t] == t ? 0.0F : decay * passed + earlier + later;
      const float length = factors_->lengths[t];
      // Of softplus, whose value it is.
      const float slope = length > static_cast<float>(s_.least_step) ? -expm1f(-length) : 0.0F;
      const float grad = (columns[k] + through[k] + a * of_decay) * slope;
      Narrow(grad, args_.grad_raw[(piece_.row + t) * args_.grad_raw_stride + head]);
      of_bias += grad;
      of_a += length * of_decay;
    }
    float* const partial = work_.partial + index_ * 3 * s_.heads + head;
    of_bias = WarpSum(of_bias);
    of_a = WarpSum(of_a);
    of_diagonal = WarpSum(of_diagonal);
    if (LaneOf() == 0) {
      partial[0] = of_bias;
      partial[s_.heads] = a * of_a;
      partial[2 * s_.heads] = of_diagonal;
    }
  }

  __device__ void Store(const LaneSums (&sums)[kTiles], Bf16* to) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int t = row_ + RowOfLane() + 8 * k;
        if (t < piece_.tokens) {
          *reinterpret_cast<unsigned*>(to + t * s_.channels() + tile * 8 + ColumnOfLane()) =
              PairOf(sums[tile][2 * k], sums[tile][2 * k + 1]);
        }
      }
    }
  }

  const StateScanBackwardArgs<Bf16>& args_;
  const ScanShape& s_;
  const ScanWork<float>& work_;
  const Bf16* const states_;
  const Bf16* const adjoints_;
  GradientMemory<kState>& m_;
  const Piece& piece_;
  const int64_t index_;
  const int row_;
  const int half_;
  const Factors* factors_ = nullptr;  // of the head
  LaneSums grad_b_[kTiles] = {};
  LaneSums grad_c_[kTiles] = {};
};

template <int kState>
__global__ void __launch_bounds__(kThreads, 2)
    TensorGradients(StateScanBackwardArgs<Bf16> args, ScanWork<float> work, const Bf16* states,
                    const Bf16* adjoints) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  const ScanShape& s = args.shape;
  const int64_t index = blockIdx.x / s.groups;
  const int64_t group = blockIdx.x % s.groups;
  const Piece piece(s, index);
  if (piece.tokens == 0) {
    const int64_t share = s.heads / s.groups;
    for (int64_t i = threadIdx.x; i < 3 * share; i += kThreads) {
      work.partial[(index * 3 + i / share) * s.heads + group * share + i % share] = 0;
    }
    return;
  }
  GradientBlock<kState>(args, work, states, adjoints, *reinterpret_cast<GradientMemory<kState>*>(dynamic),
                        piece, index)
      .Run(group);
}

// Whether the kernels have such heads, and the current GPU the shared memory of the largest of them.
template <typename Args>
bool Fits(const Args& args, std::initializer_list<const void*> matrices) {
  const ScanShape& s = args.shape;
  bool fits = s.head_dim == kChannels && (s.state == 64 || s.state == 128) &&
              static_cast<int>(s.state == 128 ? sizeof(GradientMemory<128>) : sizeof(GradientMemory<64>)) <=
                  MaxDynamicSharedBytes();
  for (const void* matrix : matrices) {
    fits = fits && reinterpret_cast<uintptr_t>(matrix) % 16 == 0;
  }
  return fits;
}

template <typename Memory, typename... Parameters, typename... Arguments>
int LaunchBlocks(void (*kernel)(Parameters...), int64_t blocks, int threads, Stream stream,
                 const Arguments&... arguments) {
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Memory));
      error != cudaSuccess) {
    return error;
  }
  kernel<<<static_cast<unsigned>(blocks), threads, sizeof(Memory), stream>>>(arguments...);
  return cudaGetLastError();
}

template <int kState>
int Forward(const StateScanArgs<Bf16>& args, Stream stream) {
  const ScanShape& s = args.shape;
  const ScanWork<float> work(s, args.work.begin);
  SumSteps<<<Blocks(Pieces(s) * s.heads), kThreads, 0, stream>>>(args, work);
  return LaunchBlocks<ForwardMemory<kState>>(ScanForward<kState>, s.sequences * s.heads, kScanThreads, stream,
                                             args, work);
}

template <int kState>
int Backward(const StateScanBackwardArgs<Bf16>& args, Stream stream) {
  const ScanShape& s = args.shape;
  const ScanWork<float> work(s, args.work.begin);
  auto* const states = reinterpret_cast<Bf16*>(work.states);
  auto* const adjoints = reinterpret_cast<Bf16*>(work.adjoints);
  SumSteps<<<Blocks(Pieces(s) * s.heads), kThreads, 0, stream>>>(args, work);
  int error = LaunchBlocks<PassMemory<kState>>(WriteStates<false, kState>, s.sequences * s.chunks() * s.heads,
                                               kScanThreads, stream, args, work, states);
  if (error == cudaSuccess) {
    error = LaunchBlocks<PassMemory<kState>>(WriteStates<true, kState>, s.sequences * s.heads, kScanThreads,
                                             stream, args, work, adjoints);
  }
  if (error == cudaSuccess) {
    error = LaunchBlocks<GradientMemory<kState>>(TensorGradients<kState>, Pieces(s) * s.groups, kThreads,
                                                 stream, args, work, states, adjoints);
  }
  AddHeadSums(args, work, stream);
  return error != cudaSuccess ? error : static_cast<int>(cudaGetLastError());
}

}  // namespace

bool FitsTensorScan(const StateScanArgs<Bf16>& args) {
  return Fits(args, {args.xbc, args.y, args.states, args.work.begin});
}

bool FitsTensorScan(const StateScanBackwardArgs<Bf16>& args) {
  return Fits(args, {args.xbc, args.states, args.grad_y, args.grad_xbc,
                     ScanWork<float>(args.shape, args.work.begin).states});
}

int LaunchTensorScan(const StateScanArgs<Bf16>& args, Stream stream) {
  return args.shape.state == 128 ? Forward<128>(args, stream) : Forward<64>(args, stream);
}

int LaunchTensorScan(const StateScanBackwardArgs<Bf16>& args, Stream stream) {
  return args.shape.state == 128 ? Backward<128>(args, stream) : Backward<64>(args, stream);
}

}  // namespace tandem::ops::cuda
