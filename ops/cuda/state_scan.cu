// SPDX-License-Identifier: Apache-2.0
// The scan of Mamba-2 mixers in pieces of kScanPiece tokens: within one, it is products of small matrices
// (Dao and Gu, arXiv:2405.21060, section 6); from piece to piece, states are passed on. With `sum` the sum of
// dt A over a piece's tokens up to and with one of them, and L[i, j] = exp(sum_i - sum_j) for j <= i in the
// document of i, else 0:
//   y_i = sum_j (C_i · B_j) L[i, j] dt_j x_j + exp(sum_i) S C_i + d x_i, S the state before the piece, if the
//   document of i began before it.
#include <cuda_runtime.h>

#include "ops/cuda/kernels.h"
#include "ops/cuda/partial_sums.cuh"
#include "ops/mixer_work.h"

namespace tandem::ops::cuda {
namespace {

constexpr int kPiece = static_cast<int>(kScanPiece);
constexpr int kTile = 64;                // rows and columns of a tile of a product
constexpr int kDepth = 32;               // of its terms in shared memory at a time
constexpr int kMicro = 4;                // rows and columns of a thread
constexpr int kAcross = kTile / kMicro;  // threads
static_assert(kAcross * kAcross == kThreads);

// Where the tokens of a piece are.
struct Piece {
  __device__ Piece(const ScanShape& s, int64_t index) {
    const int64_t of_chunk = PiecesOfChunk(s);
    sequence = index / PiecesOfSequence(s);
    const int64_t piece = index % PiecesOfSequence(s);
    const int64_t chunk = piece / of_chunk;
    begins_chunk = piece % of_chunk == 0;
    chunk_index = sequence * s.chunks() + chunk;
    begin = chunk * s.chunk + piece % of_chunk * kScanPiece;
    int64_t end = min(min(begin + kScanPiece, (chunk + 1) * s.chunk), s.length);
    tokens = static_cast<int>(max(end - begin, int64_t{0}));
    row = sequence * s.length + begin;
  }

  int64_t sequence;
  int64_t chunk_index;  // among those of all sequences
  int64_t begin;        // in the sequence
  int64_t row;          // of its first token
  int tokens;           // 0: behind the end
  bool begins_chunk;
};

// The first row of the document of a piece's token, from the piece's first on: less than 0 if the document
// began before.
__device__ inline int64_t StartIn(const DocumentStarts& documents, const Piece& piece, int token) {
  const int64_t* const starts = documents.At(piece.sequence, piece.begin);
  return (starts == nullptr ? 0 : starts[token]) - piece.begin;
}
__device__ inline bool BeganBefore(const DocumentStarts& documents, const Piece& piece, int token) {
  return StartIn(documents, piece, token) < 0;
}

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

  T* lengths;   // [tokens, H], of steps
  T* sums;      // [tokens, H]
  T* states;    // [pieces, H, P, N], before each piece
  T* adjoints;  // of the states behind each piece
  T* grad_bc;   // [tokens, 2 G N]
  T* partial;   // [pieces, 3 H]: of the gradients of dt_bias, a_log and d
};

template <typename T>
struct Step {
  template <typename Args>
  __device__ Step(const Args& args, int64_t row, int64_t head) {
    const T raw = Widen(args.raw[row * args.raw_stride + head]) + args.dt_bias[head];
    const T softplus = raw > 20 ? raw : log1p(exp(raw));
    const T least = static_cast<T>(args.shape.least_step);
    length = softplus < least ? least : softplus;
    slope = softplus < least ? T{0} : raw > 20 ? T{1} : 1 / (1 + exp(-raw));
  }

  T length;
  T slope;
};

// A thread has a head of a piece.
template <typename Args, typename T>
__global__ void SumSteps(Args args, ScanWork<T> work) {
  const ScanShape s = args.shape;
  TANDEM_EACH(i, Pieces(s) * s.heads) {
    const Piece piece(s, i / s.heads);
    const int64_t head = i % s.heads;
    const T a = -exp(args.a_log[head]);
    T sum = 0;
    for (int t = 0; t < piece.tokens; ++t) {
      const Step<T> step(args, piece.row + t, head);
      sum += step.length * a;
      work.lengths[(piece.row + t) * s.heads + head] = step.length;
      work.sums[(piece.row + t) * s.heads + head] = sum;
    }
  }
}

// The terms of a product that are in shared memory.
template <typename T>
struct TileMemory {
  T a[kDepth][kTile];
  T b[kDepth][kTile];
};

// The product of a matrix [rows, depth] and one [depth, columns], of elements a(row, k) and b(k, column),
// tile by tile: out(row, column, elements) gets the elements [kMicro, kMicro] of a thread, of which those
// outside are zeros. The threads of a warp half have the same rows.
template <typename T, typename A, typename B, typename Out>
__device__ void Product(TileMemory<T>& memory, int64_t rows, int64_t columns, int64_t depth, const A& a,
                        const B& b, const Out& out) {
  const int tx = static_cast<int>(threadIdx.x) % kAcross;
  const int ty = static_cast<int>(threadIdx.x) / kAcross;
  for (int64_t row = 0; row < rows; row += kTile) {
    for (int64_t column = 0; column < columns; column += kTile) {
      T elements[kMicro][kMicro] = {};
      for (int64_t first = 0; first < depth; first += kDepth) {
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < kDepth * kTile; i += kThreads) {
          const int64_t k = first + i / kTile;
          const int64_t at = i % kTile;
          memory.a[i / kTile][at] = k < depth && row + at < rows ? a(row + at, k) : T{0};
          memory.b[i / kTile][at] = k < depth && column + at < columns ? b(k, column + at) : T{0};
        }
        __syncthreads();
        for (int k = 0; k < kDepth; ++k) {
          T of_a[kMicro];
          T of_b[kMicro];
#pragma unroll
          for (int i = 0; i < kMicro; ++i) {
            of_a[i] = memory.a[k][ty * kMicro + i];
            of_b[i] = memory.b[k][tx * kMicro + i];
          }
#pragma unroll
          for (int i = 0; i < kMicro; ++i) {
#pragma unroll
            for (int j = 0; j < kMicro; ++j) {
              elements[i][j] += of_a[i] * of_b[j];
            }
          }
        }
      }
      out(row + ty * kMicro, column + tx * kMicro, elements);
    }
  }
  __syncthreads();
}

// Calls visit(row, column, element) for the elements of a thread that are inside.
template <typename T, typename Visit>
__device__ void EachInside(int64_t row, int64_t column, int64_t rows, int64_t columns,
                           const T (&elements)[kMicro][kMicro], const Visit& visit) {
#pragma unroll
  for (int i = 0; i < kMicro; ++i) {
#pragma unroll
    for (int j = 0; j < kMicro; ++j) {
      if (row + i < rows && column + j < columns) {
        visit(row + i, column + j, elements[i][j]);
      }
    }
  }
}

// sums[row] += over the columns of the rows of a thread and its neighbours, which have the same rows. Only
// these threads add to them.
template <typename T>
__device__ void AddRowSums(int64_t row, int64_t rows, T (&sums_of)[kMicro], T* sums) {
#pragma unroll
  for (int i = 0; i < kMicro; ++i) {
    for (int lanes = kAcross / 2; lanes > 0; lanes /= 2) {
      sums_of[i] += __shfl_xor_sync(kEveryLane, sums_of[i], lanes);
    }
    if (threadIdx.x % kAcross == 0 && row + i < rows) {
      sums[row + i] += sums_of[i];
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
  const int64_t state;  // the place of the first number of its state
};

// What the tokens of a piece add to the state behind it, or with kAdjoint what its gradients add to the
// adjoint of the state before it. A block has a head of a piece.
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

// How much of the state before a piece is in the one behind it.
template <typename Args, typename T>
__device__ T DecayOf(const Args& args, const ScanWork<T>& work, const Piece& piece, int64_t head) {
  if (piece.tokens == 0) {
    return 1;
  }
  const int last = piece.tokens - 1;
  return BeganBefore(args.documents, piece, last)
             ? exp(work.sums[(piece.row + last) * args.shape.heads + head])
             : T{0};
}

// From what each piece adds to the states before them, in the order of the pieces; or of the adjoints behind
// them, in the other one. A thread has a number of a state of a sequence. kept: where those before chunks go;
// null: nowhere.
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
      carried = carried * DecayOf(args, work, piece, head) + added;
    }
  }
}

// W[i][j] = (C_i · B_j), of the tokens of a piece.
template <typename T>
struct PieceMatrix {
  T at[kPiece][kPiece + 1];
};

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

// What the tokens of a piece have from the sums of their steps.
template <typename T>
struct PieceFactors {
  template <typename E, typename Args>
  __device__ void Read(const Args& args, const Piece& piece, const HeadOfPiece<E, T>& in) {
    const int last = piece.tokens - 1;
    for (int t = static_cast<int>(threadIdx.x); t < piece.tokens; t += kThreads) {
      const int64_t start = StartIn(args.documents, piece, t);
      sums[t] = in.Sum(t);
      lengths[t] = in.Length(t);
      starts[t] = static_cast<int>(start < 0 ? -1 : start);
      from_before[t] = start < 0 ? exp(in.Sum(t)) : T{0};
      to_behind[t] = StartIn(args.documents, piece, last) <= t ? exp(in.Sum(last) - in.Sum(t)) : T{0};
    }
    __syncthreads();
  }

  __device__ T L(int64_t i, int64_t j) const {
    return j <= i && starts[i] <= j ? exp(sums[i] - sums[j]) : T{0};
  }

  T sums[kPiece];
  T lengths[kPiece];
  T from_before[kPiece];  // of the state before the piece, in a token's
  T to_behind[kPiece];    // of what a token adds, in the state behind the piece
  int starts[kPiece];     // of the token's document; -1: before the piece
};

template <typename T>
struct ForwardMemory {
  TileMemory<T> tiles;
  PieceMatrix<T> weights;
  PieceFactors<T> factors;
};

// A block has a head of a piece.
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

template <typename T>
struct BackwardMemory {
  TileMemory<T> tiles;
  PieceMatrix<T> products;  // C_i · B_j
  PieceMatrix<T> weights;   // L[i, j] dt_j (dy_i · x_j)
  PieceFactors<T> factors;
  T diagonal[kPiece];  // dy_i · x_i
  T by_input[kPiece];  // <G_i, x_i ⊗ B_i>
  T by_sum[kPiece];    // <dy_i, y_i> without d x_i
};

// A block has a group of heads of a piece, one after the other.
template <typename E, typename T>
class BackwardBlock {
 public:
  __device__ BackwardBlock(const StateScanBackwardArgs<E>& args, const ScanWork<T>& work,
                           BackwardMemory<T>& memory, const Piece& piece, int64_t index, int64_t group)
      : args_(args), work_(work), m_(memory), piece_(piece), index_(index), group_(group), s_(args.shape) {}

  __device__ void Run() {
    const int64_t share = s_.heads / s_.groups;
    for (int64_t head = group_ * share; head < (group_ + 1) * share; ++head) {
      const HeadOfPiece<E, T> in(args_, work_, piece_, index_, head);
      if (head == group_ * share) {
        MultiplyCB(m_.tiles, in, piece_.tokens, m_.products);
      }
      RunHead(in, head, /*first=*/head == group_ * share);
    }
    for (int64_t i = threadIdx.x; i < piece_.tokens * s_.state; i += kThreads) {
      const int64_t t = i / s_.state;
      const int64_t n = i % s_.state;
      E* const row = args_.grad_xbc + (piece_.row + t) * s_.channels() + s_.inner();
      Narrow(*GradB(t, n), row[group_ * s_.state + n]);
      Narrow(*GradC(t, n), row[(s_.groups + group_) * s_.state + n]);
    }
  }

 private:
  __device__ T GradY(int64_t t, int64_t head, int64_t p) const {
    return Widen(args_.grad_y[(piece_.row + t) * s_.inner() + head * s_.head_dim + p]);
  }
  __device__ T* GradB(int64_t t, int64_t n) const {
    return work_.grad_bc + ((piece_.row + t) * 2 * s_.groups + group_) * s_.state + n;
  }
  __device__ T* GradC(int64_t t, int64_t n) const { return GradB(t, n) + s_.groups * s_.state; }

  __device__ void RunHead(const HeadOfPiece<E, T>& in, int64_t head, bool first) {
    const int tokens = piece_.tokens;
    const T* const state = work_.states + in.state;
    const T* const adjoint = work_.adjoints + in.state;
    m_.factors.Read(args_, piece_, in);
    for (int t = static_cast<int>(threadIdx.x); t < tokens; t += kThreads) {
      m_.by_input[t] = 0;
      m_.by_sum[t] = 0;
    }
    Product(
        m_.tiles, tokens, tokens, s_.head_dim, [&](int64_t i, int64_t p) { return GradY(i, head, p); },
        [&](int64_t p, int64_t j) { return in.X(j, p); },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          EachInside(row, column, tokens, tokens, elements, [&](int64_t i, int64_t j, T element) {
            m_.weights.at[i][j] = element * m_.factors.L(i, j) * m_.factors.lengths[j];
            if (i == j) {
              m_.diagonal[i] = element;
            }
          });
        });
    AddGradC(in, head, state, first);
    AddGradB(in, adjoint, first);
    WriteGradX(in, head, adjoint);
    FinishHead(in, head, Passed(in, adjoint));
    __syncthreads();
  }

  // <G, S> of the state behind the piece. Behind the last one of a sequence G is zeros.
  __device__ T Passed(const HeadOfPiece<E, T>& in, const T* adjoint) const {
    const int64_t pieces = PiecesOfSequence(s_);
    if (index_ % pieces == pieces - 1) {
      return 0;
    }
    const T* const behind = work_.states + in.state + s_.inner() * s_.state;
    T passed = 0;
    for (int64_t i = threadIdx.x; i < s_.head_dim * s_.state; i += kThreads) {
      passed += behind[i] * adjoint[i];
    }
    return BlockSum(passed);
  }

  __device__ void Add(T* to, T value, bool first) const { *to = first ? value : *to + value; }

  // Two products: what comes through the state before the piece is a part of the gradient of `sum`.
  __device__ void AddGradC(const HeadOfPiece<E, T>& in, int64_t head, const T* state, bool first) {
    const int tokens = piece_.tokens;
    Product(
        m_.tiles, tokens, s_.state, s_.head_dim,
        [&](int64_t i, int64_t p) { return m_.factors.from_before[i] * GradY(i, head, p); },
        [&](int64_t p, int64_t n) { return state[p * s_.state + n]; },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          T sums[kMicro] = {};
          EachInside(row, column, tokens, s_.state, elements, [&](int64_t i, int64_t n, T element) {
            Add(GradC(i, n), element, first);
            sums[i - row] += element * in.C(i, n);
          });
          AddRowSums(row, tokens, sums, m_.by_sum);
        });
    Product(
        m_.tiles, tokens, s_.state, tokens, [&](int64_t i, int64_t j) { return m_.weights.at[i][j]; },
        [&](int64_t j, int64_t n) { return in.B(j, n); },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          T sums[kMicro] = {};
          EachInside(row, column, tokens, s_.state, elements, [&](int64_t i, int64_t n, T element) {
            Add(GradC(i, n), element, /*first=*/false);
            sums[i - row] += element * in.C(i, n);
          });
          AddRowSums(row, tokens, sums, m_.by_sum);
        });
  }

  __device__ void AddGradB(const HeadOfPiece<E, T>& in, const T* adjoint, bool first) {
    const int tokens = piece_.tokens;
    Product(
        m_.tiles, tokens, s_.state, tokens + s_.head_dim,
        [&](int64_t j, int64_t k) {
          return k < tokens ? m_.weights.at[k][j]
                            : m_.factors.to_behind[j] * m_.factors.lengths[j] * in.X(j, k - tokens);
        },
        [&](int64_t k, int64_t n) { return k < tokens ? in.C(k, n) : adjoint[(k - tokens) * s_.state + n]; },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          EachInside(row, column, tokens, s_.state, elements,
                     [&](int64_t j, int64_t n, T element) { Add(GradB(j, n), element, first); });
        });
  }

  __device__ void WriteGradX(const HeadOfPiece<E, T>& in, int64_t head, const T* adjoint) {
    const int tokens = piece_.tokens;
    const T d = args_.d[head];
    Product(
        m_.tiles, tokens, s_.head_dim, tokens + s_.state,
        [&](int64_t j, int64_t k) {
          return k < tokens ? m_.products.at[k][j] * m_.factors.L(k, j)
                            : m_.factors.to_behind[j] * in.B(j, k - tokens);
        },
        [&](int64_t k, int64_t p) {
          return k < tokens ? GradY(k, head, p) : adjoint[p * s_.state + k - tokens];
        },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          T sums[kMicro] = {};
          EachInside(row, column, tokens, s_.head_dim, elements, [&](int64_t j, int64_t p, T element) {
            Narrow(m_.factors.lengths[j] * element + d * GradY(j, head, p),
                   args_.grad_xbc[(piece_.row + j) * s_.channels() + head * s_.head_dim + p]);
            sums[j - row] += element * in.X(j, p);
          });
          AddRowSums(row, tokens, sums, m_.by_input);
        });
  }

  // The gradient of a token's `sum`: <dy, what y has of it>, less what it divides of all that it adds to; of
  // the last one also what is passed on. A step's length is in the sums from its own on, but for the first of
  // a document, which decays nothing.
  __device__ void FinishHead(const HeadOfPiece<E, T>& in, int64_t head, T passed) const {
    if (threadIdx.x > 0) {
      return;
    }
    const T a = -exp(args_.a_log[head]);
    T behind = passed;
    T of_bias = 0;
    T of_a = 0;
    T of_d = 0;
    for (int t = piece_.tokens - 1; t >= 0; --t) {
      behind += m_.by_sum[t] - m_.factors.lengths[t] * m_.by_input[t];
      const T of_decay = m_.factors.starts[t] == t ? T{0} : behind;
      const Step<T> step(args_, piece_.row + t, head);
      const T grad = (m_.by_input[t] + a * of_decay) * step.slope;
      Narrow(grad, args_.grad_raw[(piece_.row + t) * args_.grad_raw_stride + head]);
      of_bias += grad;
      of_a += m_.factors.lengths[t] * of_decay;
      of_d += m_.diagonal[t];
    }
    T* const partial = work_.partial + index_ * 3 * s_.heads + head;
    partial[0] = of_bias;
    partial[s_.heads] = a * of_a;
    partial[2 * s_.heads] = of_d;
  }

  const StateScanBackwardArgs<E>& args_;
  const ScanWork<T>& work_;
  BackwardMemory<T>& m_;
  const Piece& piece_;
  const int64_t index_;
  const int64_t group_;
  const ScanShape& s_;
};

template <typename E, typename T>
__global__ void __launch_bounds__(kThreads) WriteGradients(StateScanBackwardArgs<E> args, ScanWork<T> work) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  const int64_t index = blockIdx.x / args.shape.groups;
  const Piece piece(args.shape, index);
  BackwardBlock<E, T>(args, work, *reinterpret_cast<BackwardMemory<T>*>(dynamic), piece, index,
                      blockIdx.x % args.shape.groups)
      .Run();
}

// The states before each piece, and where `kept` is not null those before each chunk there.
template <typename E, typename Args, typename T>
void LaunchStates(const Args& args, const ScanWork<T>& work, T* kept, Stream stream) {
  const ScanShape& s = args.shape;
  const auto blocks = static_cast<unsigned>(Pieces(s) * s.heads);
  SumSteps<<<Blocks(Pieces(s) * s.heads), kThreads, 0, stream>>>(args, work);
  AddLocalStates<false, E><<<blocks, kThreads, 0, stream>>>(args, work);
  PassStates<false><<<Blocks(s.sequences * s.inner() * s.state), kThreads, 0, stream>>>(args, work, kept);
}

template <typename Memory, typename Kernel>
int AllowShared(Kernel kernel) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(sizeof(Memory)));
}

}  // namespace

template <typename E>
int Launch(const StateScanArgs<E>& args, Stream stream) {
  using T = Arithmetic<E>;
  const ScanShape& s = args.shape;
  const ScanWork<T> work(s, args.work.begin);
  if (const int error = AllowShared<ForwardMemory<T>>(WriteOutputs<E, T>); error != cudaSuccess) {
    return error;
  }
  LaunchStates<E>(args, work, args.states, stream);
  WriteOutputs<E, T>
      <<<static_cast<unsigned>(Pieces(s) * s.heads), kThreads, sizeof(ForwardMemory<T>), stream>>>(args,
                                                                                                   work);
  return cudaGetLastError();
}
TANDEM_KERNEL(StateScanArgs)

template <typename E>
int Launch(const StateScanBackwardArgs<E>& args, Stream stream) {
  using T = Arithmetic<E>;
  const ScanShape& s = args.shape;
  const ScanWork<T> work(s, args.work.begin);
  if (const int error = AllowShared<BackwardMemory<T>>(WriteGradients<E, T>); error != cudaSuccess) {
    return error;
  }
  LaunchStates<E>(args, work, static_cast<T*>(nullptr), stream);
  AddLocalStates<true, E><<<static_cast<unsigned>(Pieces(s) * s.heads), kThreads, 0, stream>>>(args, work);
  PassStates<true><<<Blocks(s.sequences * s.inner() * s.state), kThreads, 0, stream>>>(
      args, work, static_cast<T*>(nullptr));
  WriteGradients<E, T>
      <<<static_cast<unsigned>(Pieces(s) * s.groups), kThreads, sizeof(BackwardMemory<T>), stream>>>(args,
                                                                                                     work);
  T* const sums[] = {args.grad_dt_bias, args.grad_a_log, args.grad_d};
  for (int i = 0; i < 3; ++i) {
    AddPartialSums<<<PartialSumBlocks(s.heads), kThreads, 0, stream>>>(
        work.partial + i * s.heads, 3 * s.heads, Pieces(s), s.heads, /*add=*/false, sums[i]);
  }
  return cudaGetLastError();
}
TANDEM_KERNEL(StateScanBackwardArgs)

}  // namespace tandem::ops::cuda
