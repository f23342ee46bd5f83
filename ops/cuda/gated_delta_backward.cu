// SPDX-License-Identifier: Apache-2.0
// The backward of gated_delta.cu. With the adjoint G of the state behind a piece, U = (1 + A)^-1 R gives
//   dU_j = sum_{i>=j} L(i, j) (q_i · k_j) dy_i + L(last, j) G^T k_j;  dR = (1 + A)^-T dU;  dA = -dR U^T
//   the adjoint before it: e_last G + sum_i e_i (q_i ⊗ dy_i - β_i k_i ⊗ dR_i)
#include <cuda_runtime.h>

#include "ops/cuda/gated_delta.cuh"
#include "ops/cuda/partial_sums.cuh"

namespace tandem::ops::cuda {
namespace {

// From the adjoints behind pieces to the gradients of R, and to the adjoints before them, in the other order.
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

template <typename T>
struct DeltaGradientMemory {
  TileMemory<T> tiles;
  PieceMatrix<T> of_reads;  // L(i, j) (dy_i · u_j)
  PieceMatrix<T> of_keys;   // -L(i, j) (dR_i · u_j), j < i
  PieceDecays<T> decays;
  T betas[kPiece];
  T of_queries[kPiece];  // q_i · dq_i
  T as_reader[kPiece];   // k_i · its gradient as that of a token that reads, without β_i
  T as_written[kPiece];  // k_i · its gradient as that of what is written
  T of_values[kPiece];   // dR_i · v_i
};

// A block has the value heads of a key head of a piece, one after the other.
template <typename E, typename T>
class DeltaGradientBlock {
 public:
  __device__ DeltaGradientBlock(const GatedDeltaBackwardArgs<E>& args, const DeltaWork<T>& work,
                                DeltaGradientMemory<T>& memory, const Piece& piece, int64_t index,
                                int64_t key_head)
      : args_(args),
        work_(work),
        m_(memory),
        piece_(piece),
        index_(index),
        key_head_(key_head),
        s_(args.shape) {}

  __device__ void Run() {
    const int64_t begin = key_head_ * s_.share();
    for (int64_t head = begin; head < begin + s_.share(); ++head) {
      const DeltaHead<E, T> in(args_, work_, piece_, index_, head);
      m_.decays.Read(args_.documents, piece_, [&](int t) { return in.Sum(t); });
      ReadTokens(in, head);
      MultiplyTokens(in, head);
      AddGradQ(in, head, /*first=*/head == begin);
      AddGradK(in, head, /*first=*/head == begin);
      Finish(in, head, Passed(in));
      __syncthreads();
    }
    WriteDivided();
  }

 private:
  __device__ T GradY(int64_t t, int64_t head, int64_t p) const {
    return Widen(args_.grad_y[(piece_.row + t) * s_.values() + head * s_.value_dim + p]);
  }
  __device__ T GradRight(int64_t t, int64_t head, int64_t p) const {
    return work_.grad_right[(piece_.row + t) * s_.values() + head * s_.value_dim + p];
  }
  __device__ T* GradQ(int64_t t) const {
    return work_.grad_qk + (piece_.row + t) * 2 * s_.keys() + key_head_ * s_.key_dim;
  }
  __device__ T* GradK(int64_t t) const { return GradQ(t) + s_.keys(); }

  // What a warp has of each token: dR_i · v_i, and the gradient of v_i.
  __device__ void ReadTokens(const DeltaHead<E, T>& in, int64_t head) {
    for (int t = static_cast<int>(threadIdx.x) / 32; t < piece_.tokens; t += kWarps) {
      const T beta = in.Beta(t);
      T dot = 0;
      for (int64_t p = threadIdx.x % 32; p < s_.value_dim; p += 32) {
        const T right = GradRight(t, head, p);
        dot += right * in.V(t, p);
        Narrow(beta * right, args_.grad_v[(piece_.row + t) * s_.values() + head * s_.value_dim + p]);
      }
      dot = WarpSum(dot);
      if (threadIdx.x % 32 == 0) {
        m_.betas[t] = beta;
        m_.of_values[t] = dot;
        m_.of_queries[t] = 0;
        m_.as_reader[t] = 0;
        m_.as_written[t] = 0;
      }
    }
    __syncthreads();
  }

  __device__ void MultiplyTokens(const DeltaHead<E, T>& in, int64_t head) {
    const int tokens = piece_.tokens;
    const auto written = [&](int64_t p, int64_t j) { return in.Written(j, p); };
    Product(
        m_.tiles, tokens, tokens, s_.value_dim, [&](int64_t i, int64_t p) { return GradY(i, head, p); },
        written,
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          EachInside(row, column, tokens, tokens, elements, [&](int64_t i, int64_t j, T element) {
            m_.of_reads.at[i][j] = m_.decays.L(i, j) * element;
          });
        });
    Product(
        m_.tiles, tokens, tokens, s_.value_dim, [&](int64_t i, int64_t p) { return GradRight(i, head, p); },
        written,
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          EachInside(row, column, tokens, tokens, elements, [&](int64_t i, int64_t j, T element) {
            m_.of_keys.at[i][j] = j < i ? -m_.decays.L(i, j) * element : T{0};
          });
        });
  }

  __device__ void AddGradQ(const DeltaHead<E, T>& in, int64_t head, bool first) {
    const int tokens = piece_.tokens;
    const T* const state = work_.states + in.state;
    Product(
        m_.tiles, tokens, s_.key_dim, tokens + s_.value_dim,
        [&](int64_t i, int64_t k) {
          return k < tokens ? m_.of_reads.at[i][k] : m_.decays.from_before[i] * GradY(i, head, k - tokens);
        },
        [&](int64_t k, int64_t n) { return k < tokens ? in.K(k, n) : state[(k - tokens) * s_.key_dim + n]; },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          T sums[kMicro] = {};
          EachInside(row, column, tokens, s_.key_dim, elements, [&](int64_t i, int64_t n, T element) {
            GradQ(i)[n] = first ? element : GradQ(i)[n] + element;
            sums[i - row] += element * in.Q(i, n);
          });
          AddRowSums(row, tokens, sums, m_.of_queries);
        });
  }

  // A key is that of a token that reads the state, and of one that writes to it.
  __device__ void AddGradK(const DeltaHead<E, T>& in, int64_t head, bool first) {
    const int tokens = piece_.tokens;
    const T* const state = work_.states + in.state;
    const T* const adjoint = work_.adjoints + in.state;
    Product(
        m_.tiles, tokens, s_.key_dim, tokens + s_.value_dim,
        [&](int64_t i, int64_t k) {
          return k < tokens ? m_.of_keys.at[i][k]
                            : -m_.decays.from_before[i] * GradRight(i, head, k - tokens);
        },
        [&](int64_t k, int64_t n) { return k < tokens ? in.K(k, n) : state[(k - tokens) * s_.key_dim + n]; },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          T sums[kMicro] = {};
          EachInside(row, column, tokens, s_.key_dim, elements, [&](int64_t i, int64_t n, T element) {
            const T of_key = m_.betas[i] * element;
            GradK(i)[n] = first ? of_key : GradK(i)[n] + of_key;
            sums[i - row] += element * in.K(i, n);
          });
          AddRowSums(row, tokens, sums, m_.as_reader);
        });
    Product(
        m_.tiles, tokens, s_.key_dim, 2 * tokens + s_.value_dim,
        [&](int64_t j, int64_t k) {
          return k < tokens       ? m_.of_reads.at[k][j]
                 : k < 2 * tokens ? m_.betas[k - tokens] * m_.of_keys.at[k - tokens][j]
                                  : m_.decays.to_behind[j] * in.Written(j, k - 2 * tokens);
        },
        [&](int64_t k, int64_t n) {
          return k < tokens       ? in.Q(k, n)
                 : k < 2 * tokens ? in.K(k - tokens, n)
                                  : adjoint[(k - 2 * tokens) * s_.key_dim + n];
        },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          T sums[kMicro] = {};
          EachInside(row, column, tokens, s_.key_dim, elements, [&](int64_t j, int64_t n, T element) {
            GradK(j)[n] += element;
            sums[j - row] += element * in.K(j, n);
          });
          AddRowSums(row, tokens, sums, m_.as_written);
        });
  }

  // <G, S> of the state behind the piece. Behind the last one of a sequence G is zeros.
  __device__ T Passed(const DeltaHead<E, T>& in) const {
    const int64_t pieces = PiecesOfSequence(s_);
    if (index_ % pieces == pieces - 1) {
      return 0;
    }
    const T* const behind = work_.states + in.state + s_.state();
    const T* const adjoint = work_.adjoints + in.state;
    T passed = 0;
    for (int64_t i = threadIdx.x; i < s_.value_dim * s_.key_dim; i += kThreads) {
      passed += behind[i] * adjoint[i];
    }
    return BlockSum(passed);
  }

  // The gradient of a token's `sum`: what is multiplied by exp(sum) as it reads, less what is divided by it
  // as it is written; of the last one also what is passed on. A decay is in the sums from its own on, but for
  // the first of a document, which decays nothing.
  __device__ void Finish(const DeltaHead<E, T>& in, int64_t head, T passed) const {
    if (threadIdx.x > 0) {
      return;
    }
    const T a = -exp(args_.a_log[head]);
    const int64_t column = key_head_ * 2 * s_.share() + head % s_.share();
    T behind = passed;
    T of_bias = 0;
    T of_a = 0;
    for (int t = piece_.tokens - 1; t >= 0; --t) {
      behind += m_.of_queries[t] + m_.betas[t] * m_.as_reader[t] - m_.as_written[t];
      const T of_decay = m_.decays.starts[t] == t ? T{0} : behind;
      const DeltaGate<T> gate(args_, piece_.row + t, head);
      const T grad = a * of_decay * gate.slope;
      E* const grad_ba = args_.grad_ba + (piece_.row + t) * args_.grad_ba_stride + column;
      Narrow((m_.as_reader[t] + m_.of_values[t]) * gate.beta * (1 - gate.beta), grad_ba[0]);
      Narrow(grad, grad_ba[s_.share()]);
      of_bias += grad;
      of_a += gate.length * of_decay;
    }
    T* const partial = work_.partial + index_ * 2 * s_.value_heads + head;
    partial[0] = of_bias;
    partial[s_.value_heads] = a * of_a;
  }

  // The gradients of queries and keys before they were divided by their lengths.
  __device__ void WriteDivided() const {
    const DeltaHead<E, T> in(args_, work_, piece_, index_, key_head_ * s_.share());
    for (int t = static_cast<int>(threadIdx.x) / 32; t < piece_.tokens; t += kWarps) {
      const int64_t row = (piece_.row + t) * s_.keys() + key_head_ * s_.key_dim;
      WriteDividedRow(in.q + t * s_.keys(), GradQ(t), in.of_q[t * s_.key_heads], in.scale,
                      args_.grad_q + row);
      WriteDividedRow(in.k + t * s_.keys(), GradK(t), in.of_k[t * s_.key_heads], T{1}, args_.grad_k + row);
    }
  }

  // Of a warp: x * r is of length 1.
  __device__ void WriteDividedRow(const E* x, const T* grad, T r, T scale, E* to) const {
    T dot = 0;
    for (int64_t n = threadIdx.x % 32; n < s_.key_dim; n += 32) {
      dot += grad[n] * Widen(x[n]);
    }
    const T along = r * r * WarpSum(dot);
    for (int64_t n = threadIdx.x % 32; n < s_.key_dim; n += 32) {
      Narrow((grad[n] - Widen(x[n]) * along) * (r * scale), to[n]);
    }
  }

  const GatedDeltaBackwardArgs<E>& args_;
  const DeltaWork<T>& work_;
  DeltaGradientMemory<T>& m_;
  const Piece& piece_;
  const int64_t index_;
  const int64_t key_head_;
  const DeltaShape& s_;
};

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
  using T = Arithmetic<E>;
  const DeltaShape& s = args.shape;
  const DeltaWork<T> work(s, args.work.begin);
  if (const int error = LaunchDeltaStates(args, work, static_cast<T*>(nullptr), stream);
      error != cudaSuccess) {
    return error;
  }
  if (const int error = AllowShared<PassMemory<T>>(PassDeltaAdjoints<E, T>); error != cudaSuccess) {
    return error;
  }
  if (const int error = AllowShared<DeltaGradientMemory<T>>(WriteDeltaGradients<E, T>);
      error != cudaSuccess) {
    return error;
  }
  PassDeltaAdjoints<E, T><<<static_cast<unsigned>(s.sequences * s.value_heads * DeltaColumns::Tiles(s)),
                            kThreads, sizeof(PassMemory<T>), stream>>>(args, work);
  WriteDeltaGradients<E, T>
      <<<static_cast<unsigned>(Pieces(s) * s.key_heads), kThreads, sizeof(DeltaGradientMemory<T>), stream>>>(
          args, work);
  T* const sums[] = {args.grad_dt_bias, args.grad_a_log};
  for (int i = 0; i < 2; ++i) {
    AddPartialSums<<<PartialSumBlocks(s.value_heads), kThreads, 0, stream>>>(
        work.partial + i * s.value_heads, 2 * s.value_heads, Pieces(s), s.value_heads, /*add=*/false,
        sums[i]);
  }
  return cudaGetLastError();
}
TANDEM_KERNEL(GatedDeltaBackwardArgs)

}  // namespace tandem::ops::cuda
