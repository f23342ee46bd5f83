// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/gated_delta.cuh"

// The gradients of a gated delta net, piece by piece. gated_delta_backward.cu computes the adjoints after all
// pieces first.
namespace tandem::ops::cuda {

// The shared memory of a block; dy_i, dR_i: gradients of y_i and R_i.
template <typename T>
struct DeltaGradientMemory {
  TileMemory<T> tiles;
  PieceMatrix<T> of_reads;  // L(i, j) (dy_i · u_j)
  PieceMatrix<T> of_keys;   // -L(i, j) (dR_i · u_j), j < i
  PieceMatrix<T> passed;    // the gradient of log L(i, j): of_reads (q_i · k_j) + β_i of_keys (k_i · k_j)
  PieceDecays<T> decays;
  T betas[kPiece];
  T from_before[kPiece];  // the gradient of sum_i, through the state before the piece
  T to_behind[kPiece];    // the gradient of -sum_j, through the state after the piece
  T within[kPiece];       // the sum of `passed` over the pairs j < t <= i, for token t
  T as_reader[kPiece];    // k_i · (its gradient as a reader of the state), without β_i
  T of_values[kPiece];    // dR_i · v_i
};

// A block computes the value heads of one key head in a piece, one after the other.
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
      SumWithin();
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

  // Computes dR_i · v_i and the gradient of v_i; a warp computes one token at a time.
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
        m_.from_before[t] = 0;
        m_.to_behind[t] = 0;
        m_.as_reader[t] = 0;
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
            m_.passed.at[i][j] = j < i ? work_.reads[in.matrix + i * kPiece + j] * element : T{0};
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
    Product(
        m_.tiles, tokens, tokens, s_.key_dim, [&](int64_t i, int64_t n) { return in.K(i, n); },
        [&](int64_t n, int64_t j) { return in.K(j, n); },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          EachInside(row, column, tokens, tokens, elements, [&](int64_t i, int64_t j, T element) {
            m_.passed.at[i][j] += m_.betas[i] * m_.of_keys.at[i][j] * element;
          });
        });
  }

  // Products with the states before and after the piece are computed by themselves, because the gradients of
  // decays are sums of their elements.
  __device__ void AddGradQ(const DeltaHead<E, T>& in, int64_t head, bool first) {
    const int tokens = piece_.tokens;
    const T* const state = work_.states + in.state;
    Product(
        m_.tiles, tokens, s_.key_dim, s_.value_dim,
        [&](int64_t i, int64_t p) { return m_.decays.from_before[i] * GradY(i, head, p); },
        [&](int64_t p, int64_t n) { return state[p * s_.key_dim + n]; },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          T sums[kMicro] = {};
          EachInside(row, column, tokens, s_.key_dim, elements, [&](int64_t i, int64_t n, T element) {
            GradQ(i)[n] = first ? element : GradQ(i)[n] + element;
            sums[i - row] += element * in.Q(i, n);
          });
          AddRowSums(row, tokens, sums, m_.from_before);
        });
    Product(
        m_.tiles, tokens, s_.key_dim, tokens, [&](int64_t i, int64_t j) { return m_.of_reads.at[i][j]; },
        [&](int64_t j, int64_t n) { return in.K(j, n); },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          EachInside(row, column, tokens, s_.key_dim, elements,
                     [&](int64_t i, int64_t n, T element) { GradQ(i)[n] += element; });
        });
  }

  // The gradient of a key has two parts, because its token reads the state and writes to it.
  __device__ void AddGradK(const DeltaHead<E, T>& in, int64_t head, bool first) {
    const int tokens = piece_.tokens;
    const T* const state = work_.states + in.state;
    const T* const adjoint = work_.adjoints + in.state;
    const auto add_as_reader = [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro],
                                   bool overwrite, bool from_before) {
      T sums[kMicro] = {};
      T of_state[kMicro] = {};
      EachInside(row, column, tokens, s_.key_dim, elements, [&](int64_t i, int64_t n, T element) {
        const T of_key = m_.betas[i] * element;
        GradK(i)[n] = overwrite ? of_key : GradK(i)[n] + of_key;
        sums[i - row] += element * in.K(i, n);
        of_state[i - row] += from_before ? of_key * in.K(i, n) : T{0};
      });
      AddRowSums(row, tokens, sums, m_.as_reader);
      AddRowSums(row, tokens, of_state, m_.from_before);
    };
    Product(
        m_.tiles, tokens, s_.key_dim, s_.value_dim,
        [&](int64_t i, int64_t p) { return -m_.decays.from_before[i] * GradRight(i, head, p); },
        [&](int64_t p, int64_t n) { return state[p * s_.key_dim + n]; },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          add_as_reader(row, column, elements, /*overwrite=*/first, /*from_before=*/true);
        });
    Product(
        m_.tiles, tokens, s_.key_dim, tokens, [&](int64_t i, int64_t j) { return m_.of_keys.at[i][j]; },
        [&](int64_t j, int64_t n) { return in.K(j, n); },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          add_as_reader(row, column, elements, /*overwrite=*/false, /*from_before=*/false);
        });
    Product(
        m_.tiles, tokens, s_.key_dim, s_.value_dim,
        [&](int64_t j, int64_t p) { return m_.decays.to_behind[j] * in.Written(j, p); },
        [&](int64_t p, int64_t n) { return adjoint[p * s_.key_dim + n]; },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          T sums[kMicro] = {};
          EachInside(row, column, tokens, s_.key_dim, elements, [&](int64_t j, int64_t n, T element) {
            GradK(j)[n] += element;
            sums[j - row] += element * in.K(j, n);
          });
          AddRowSums(row, tokens, sums, m_.to_behind);
        });
    Product(
        m_.tiles, tokens, s_.key_dim, 2 * tokens,
        [&](int64_t j, int64_t k) {
          return k < tokens ? m_.of_reads.at[k][j] : m_.betas[k - tokens] * m_.of_keys.at[k - tokens][j];
        },
        [&](int64_t k, int64_t n) { return k < tokens ? in.Q(k, n) : in.K(k - tokens, n); },
        [&](int64_t row, int64_t column, const T(&elements)[kMicro][kMicro]) {
          EachInside(row, column, tokens, s_.key_dim, elements,
                     [&](int64_t j, int64_t n, T element) { GradK(j)[n] += element; });
        });
  }

  // Computes `within` without subtractions: sums `passed` first over the tokens from i on for each j, then
  // over the tokens j before i.
  __device__ void SumWithin() {
    const int t = static_cast<int>(threadIdx.x);
    T sum = 0;
    for (int i = piece_.tokens - 1; i > t; --i) {
      sum += m_.passed.at[i][t];
      m_.passed.at[i][t] = sum;
    }
    __syncthreads();
    if (t < piece_.tokens) {
      sum = 0;
      for (int j = 0; j < t; ++j) {
        sum += m_.passed.at[t][j];
      }
      m_.within[t] = sum;
    }
    __syncthreads();
  }

  // <G, S> for the part of the state before the piece that remains in the state after it.
  __device__ T Passed(const DeltaHead<E, T>& in) const {
    const T* const state = work_.states + in.state;
    const T* const adjoint = work_.adjoints + in.state;
    T passed = 0;
    for (int64_t i = threadIdx.x; i < s_.value_dim * s_.key_dim; i += kThreads) {
      passed += state[i] * adjoint[i];
    }
    return DecayOf<T>(args_.documents, piece_, [&](int t) { return in.Sum(t); }) * BlockSum(passed);
  }

  // The gradient of log γ_t is a sum over everything that decays through token t. It decays from the state
  // before the piece, or from tokens before t, to tokens from t on or to the state after the piece. Nothing
  // decays through the first token of a document.
  __device__ void Finish(const DeltaHead<E, T>& in, int64_t head, T passed) const {
    if (threadIdx.x > 0) {
      return;
    }
    const T a = -exp(args_.a_log[head]);
    const int64_t column = key_head_ * 2 * s_.share() + head % s_.share();
    T before = 0;  // the sum of to_behind over the tokens before t
    for (int t = 0; t < piece_.tokens; ++t) {
      m_.within[t] += before;
      before += m_.to_behind[t];
    }
    T behind = passed;
    T of_bias = 0;
    T of_a = 0;
    for (int t = piece_.tokens - 1; t >= 0; --t) {
      behind += m_.from_before[t];
      const T of_decay = m_.decays.starts[t] == t ? T{0} : behind + m_.within[t];
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

  // Writes the gradients of q and k, from those of queries and keys, which are q and k divided by their
  // lengths.
  __device__ void WriteDivided() const {
    const DeltaHead<E, T> in(args_, work_, piece_, index_, key_head_ * s_.share());
    for (int t = static_cast<int>(threadIdx.x) / 32; t < piece_.tokens; t += kWarps) {
      const int64_t row = (piece_.row + t) * s_.keys() + key_head_ * s_.key_dim;
      WriteDividedRow(in.q + t * s_.keys(), GradQ(t), in.of_q[t * s_.key_heads], in.scale,
                      args_.grad_q + row);
      WriteDividedRow(in.k + t * s_.keys(), GradK(t), in.of_k[t * s_.key_heads], T{1}, args_.grad_k + row);
    }
  }

  // Writes one row by a warp. r = 1 / the length of x.
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

}  // namespace tandem::ops::cuda
