// SPDX-License-Identifier: Apache-2.0
// The backward of state_scan.cu.
#include <cuda_runtime.h>

#include <type_traits>

#include "ops/cuda/state_scan.cuh"
#include "ops/cuda/tensor_scan.h"

namespace tandem::ops::cuda {
namespace {

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

// A block computes the heads of a group in a piece, one after the other.
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

  // <G, S> for the state after the piece. After the last piece of a sequence G is zero.
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

  // Computes two products, because the part through the state before the piece also belongs to the gradient
  // of `sum`.
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

  // Computes the gradient of a token's `sum`: <dy, the part of y that has it>, less the part that it divides
  // of everything it adds to; for the last token, also what is passed on. A step's length is in the sums
  // from its own on, except for the first token of a document, before which nothing decays.
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

}  // namespace

template <typename E>
int Launch(const StateScanBackwardArgs<E>& args, Stream stream) {
  if constexpr (std::is_same_v<E, Bf16>) {
    if (ScansOnTensorCores(args.shape, sizeof(E))) {
      return LaunchTensorScan(args, stream);
    }
  }
  using T = Arithmetic<E>;
  const ScanShape& s = args.shape;
  const ScanWork<T> work(s, args.work.begin);
  LaunchStates<E>(args, work, static_cast<T*>(nullptr), stream);
  AddLocalStates<true, E><<<static_cast<unsigned>(Pieces(s) * s.heads), kThreads, 0, stream>>>(args, work);
  PassStates<true><<<Blocks(s.sequences * s.inner() * s.state), kThreads, 0, stream>>>(
      args, work, static_cast<T*>(nullptr));
  LaunchWith<BackwardMemory<T>>(WriteGradients<E, T>, Pieces(s) * s.groups, kThreads, stream, args, work);
  AddHeadSums(args, work.partial, stream);
  return cudaGetLastError();
}
TANDEM_KERNEL(StateScanBackwardArgs)

}  // namespace tandem::ops::cuda
