// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_pipeline.h>

#include <cstdint>

#include "ops/cuda/tensor_delta.cuh"

namespace tandem::ops::cuda {

// A block computes the value heads of one key head in a piece, one after the other.
template <int kKey>
class TensorDeltaBlock {
 public:
  __device__ TensorDeltaBlock(const GatedDeltaBackwardArgs<Bf16>& args, const TensorDeltaWork& work,
                              TensorDeltaMemory<kKey>& memory, const Piece& piece, int64_t index,
                              int64_t key_head)
      : args_(args),
        s_(args.shape),
        work_(work),
        m_(memory),
        piece_(piece),
        index_(index),
        key_head_(key_head) {}

  __device__ void Run() {
    const int64_t of_keys = piece_.row * s_.keys() + key_head_ * kKey;
    StartCopy<kThreads>(args_.k + of_keys, s_.keys(), piece_.tokens, m_.k);
    StartCopy<kThreads>(args_.q + of_keys, s_.keys(), piece_.tokens, m_.q);
    for (int64_t head = key_head_ * s_.share(); head < (key_head_ + 1) * s_.share(); ++head) {
      DeltaFactorReader reader;
      reader.Read(args_, work_, piece_, head, static_cast<int>(threadIdx.x));
      reader.Write(m_.factors);
      RunHead(head, reader.Decay());
    }
    const auto of_key_dim = static_cast<float>(kKey);  // queries are divided by its square root
    WriteDivided(m_.q, grad_q_, m_.factors.of_q, of_key_dim, m_.from_before, args_.grad_q + of_keys);
    WriteDivided(m_.k, grad_k_, m_.factors.of_k, 1.0F, m_.to_behind, args_.grad_k + of_keys);
  }

 private:
  static constexpr int kColumns = kKey / 2;  // of a warp's part of queries and keys
  static constexpr int kPairs = kPiece / 2;  // and of a matrix of tokens
  static __device__ int Warp() { return static_cast<int>(threadIdx.x) / 32; }

  __device__ void RunHead(int64_t head, float decay) {
    LaneSums of_y[kPairs / 8] = {};      // dy_i · u_j
    LaneSums of_right[kPairs / 8] = {};  // dR_i · u_j
    float from_before[2] = {};
    float to_behind[2] = {};
    float read_of_state[2] = {};
    float passed_on = 0;
    for (int64_t first = 0; first < s_.value_dim; first += kValues) {
      StartTile(head, first);
      __pipeline_commit();
      __pipeline_wait_prior(0);
      __syncthreads();
#pragma unroll
      for (int p = 0; p < kValues; p += 16) {
        AddColumnsOf(m_.tile.grad_y.Left(WarpRow(), p), m_.tile.written, p, WarpHalf() * kPairs, of_y);
        AddColumnsOf(m_.tile.grad_right.Left(WarpRow(), p), m_.tile.written, p, WarpHalf() * kPairs,
                     of_right);
      }
      AddThroughStates(from_before, to_behind, read_of_state);
      AddOfValues(head, first);
      passed_on += StateByAdjoint();
      __syncthreads();
    }
    WriteRows(from_before, m_.from_before);
    WriteRows(to_behind, m_.to_behind);
    WriteRows(read_of_state, m_.read_of_state);
    passed_on = WarpSum(passed_on);
    if (LaneOf() == 0) {
      m_.passed_on[Warp()] = passed_on;
    }
    WriteReads(of_y);
    WriteKeys(of_y, of_right);
    __syncthreads();
    AddThroughPairs();
    SumQuarters();
    __syncthreads();
    SumWithin();
    __syncthreads();
    if (Warp() == 0) {
      Finish(head, decay);
    }
    __syncthreads();
  }

  __device__ void StartTile(int64_t head, int64_t first) const {
    const int64_t column = head * s_.value_dim + first;
    const int64_t row = piece_.row * s_.values() + column;
    const int64_t state = index_ * s_.state() + column * kKey;
    StartCopy<kThreads>(args_.grad_y + row, s_.values(), piece_.tokens, m_.tile.grad_y);
    StartCopy<kThreads>(work_.grad_right + row, s_.values(), piece_.tokens, m_.tile.grad_right);
    StartCopy<kThreads>(work_.written + row, s_.values(), piece_.tokens, m_.tile.written);
    StartCopy<kThreads>(work_.states + state, kKey, kValues, m_.tile.state);
    StartCopy<kThreads>(work_.adjoints + state, kKey, kValues, m_.tile.adjoint);
  }

  // Adds the gradients of queries and keys through the state before the piece, and of keys through the state
  // after it. These are computed by themselves, because the gradients of decays are sums of their products
  // with queries and keys.
  __device__ void AddThroughStates(float (&from_before)[2], float (&to_behind)[2],
                                   float (&read_of_state)[2]) {
    const DeltaFactors& factors = m_.factors;
#pragma unroll
    for (int tile = 0; tile < kColumns / 8; tile += 2) {
      const int column = WarpHalf() * kColumns + tile * 8;
      LaneSums of_q[2] = {};
      LaneSums of_k[2] = {};
      LaneSums of_written[2] = {};
#pragma unroll
      for (int p = 0; p < kValues; p += 16) {
        AddRowsOf(m_.tile.grad_y.Left(WarpRow(), p), m_.tile.state, p, column, of_q);
        AddRowsOf(m_.tile.grad_right.Left(WarpRow(), p), m_.tile.state, p, column, of_k);
        AddRowsOf(m_.tile.written.Left(WarpRow(), p), m_.tile.adjoint, p, column, of_written);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int t = WarpRow() + RowOfLane() + 8 * k;
          const int at = column + i * 8 + ColumnOfLane();
          const float2 q = FloatsOf(*reinterpret_cast<const unsigned*>(&m_.q.at[t][at]));
          const float2 key = FloatsOf(*reinterpret_cast<const unsigned*>(&m_.k.at[t][at]));
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            const float grad_q = factors.read_by_q[t] * of_q[i][2 * k + c];
            const float as_reader = -factors.from_before[t] * factors.of_k[t] * of_k[i][2 * k + c];
            const float as_writer = factors.written_by_k[t] * of_written[i][2 * k + c];
            const float of_query = c == 0 ? q.x : q.y;
            const float of_key = c == 0 ? key.x : key.y;
            grad_q_[tile + i][2 * k + c] += grad_q;
            grad_k_[tile + i][2 * k + c] += factors.betas[t] * as_reader + as_writer;
            from_before[k] += grad_q * of_query + factors.betas[t] * as_reader * of_key;
            to_behind[k] += as_writer * of_key;
            read_of_state[k] += as_reader * of_key;
          }
        }
      }
    }
  }

  // A warp computes a token, and a lane two of its channels.
  __device__ void AddOfValues(int64_t head, int64_t first) {
    for (int t = Warp(); t < piece_.tokens; t += kWarps) {
      const Bf16* const v =
          args_.v + (piece_.row + t) * s_.values() + head * s_.value_dim + first + 2 * LaneOf();
      const float2 of_v = FloatsOf(*reinterpret_cast<const unsigned*>(v));
      const float2 right =
          FloatsOf(*reinterpret_cast<const unsigned*>(&m_.tile.grad_right.at[t][2 * LaneOf()]));
      const float sum = WarpSum(right.x * of_v.x + right.y * of_v.y);
      if (LaneOf() == 0) {
        m_.of_values[t] = first == 0 ? sum : m_.of_values[t] + sum;
      }
    }
  }

  __device__ float StateByAdjoint() const {
    constexpr int kAcross = kKey / 2;
    float sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < kValues * kAcross; i += kThreads) {
      const int row = i / kAcross;
      const int column = i % kAcross * 2;
      const float2 s = FloatsOf(*reinterpret_cast<const unsigned*>(&m_.tile.state.at[row][column]));
      const float2 g = FloatsOf(*reinterpret_cast<const unsigned*>(&m_.tile.adjoint.at[row][column]));
      sum += s.x * g.x + s.y * g.y;
    }
    return sum;
  }

  // Writes the sums of a lane's two rows over the lanes that have the same rows.
  __device__ void WriteRows(const float (&sums)[2], float (&to)[2][kPiece]) const {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const float sum = RowSum(sums[k]);
      if (ColumnOfLane() == 0) {
        to[WarpHalf()][WarpRow() + RowOfLane() + 8 * k] = sum;
      }
    }
  }

  // Computes a warp's part of the products of `tokens` with keys. Skips parts whose keys are all after the
  // warp's tokens.
  __device__ void MultiplyByKeys(const TokenKeys<kKey>& tokens, LaneSums (&sums)[kPairs / 8]) const {
    if (WarpHalf() * kPairs > WarpRow() + 15) {
      return;
    }
#pragma unroll
    for (int n = 0; n < kKey; n += 16) {
      AddColumnsOf(tokens.Left(WarpRow(), n), m_.k, n, WarpHalf() * kPairs, sums);
    }
  }

  // Writes of_reads. of_y becomes the gradients of log L(i, j) through the queries.
  __device__ void WriteReads(LaneSums (&of_y)[kPairs / 8]) {
    LaneSums by_keys[kPairs / 8] = {};
    MultiplyByKeys(m_.q, by_keys);
#pragma unroll
    for (int tile = 0; tile < kPairs / 8; ++tile) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int i = WarpRow() + RowOfLane() + k / 2 * 8;
        const int j = WarpHalf() * kPairs + tile * 8 + ColumnOfLane() + k % 2;
        const float element =
            m_.factors.Decay(i, j) * m_.factors.of_q[i] * m_.factors.of_k[j] * of_y[tile][k];
        of_y[tile][k] = j < i ? element * by_keys[tile][k] : 0.0F;
        by_keys[tile][k] = element;
      }
    }
    RoundInto(by_keys, WarpHalf() * kPairs, m_.pairs.of_reads);
  }

  // Writes of_keys and `passed`. passed: the gradients of log L(i, j) through the queries.
  __device__ void WriteKeys(const LaneSums (&passed)[kPairs / 8], const LaneSums (&of_right)[kPairs / 8]) {
    LaneSums by_keys[kPairs / 8] = {};
    MultiplyByKeys(m_.k, by_keys);
    float read_of_tokens[2] = {};
#pragma unroll
    for (int tile = 0; tile < kPairs / 8; ++tile) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int i = WarpRow() + RowOfLane() + k / 2 * 8;
        const int j = WarpHalf() * kPairs + tile * 8 + ColumnOfLane() + k % 2;
        const float element =
            j < i ? -m_.factors.Decay(i, j) * m_.factors.of_k[i] * m_.factors.of_k[j] * of_right[tile][k]
                  : 0.0F;
        read_of_tokens[k / 2] += element * by_keys[tile][k];
        m_.pairs.passed[i][j] = passed[tile][k] + m_.factors.betas[i] * element * by_keys[tile][k];
        by_keys[tile][k] = m_.factors.betas[i] * element;
      }
    }
    RoundInto(by_keys, WarpHalf() * kPairs, m_.pairs.of_keys);
    WriteRows(read_of_tokens, m_.read_of_tokens);
  }

  __device__ void AddThroughPairs() {
    const int column = WarpHalf() * kColumns;
#pragma unroll 1
    for (int block = 0; block <= WarpRow(); block += 16) {
      AddRowsOf(m_.pairs.of_reads.Left(WarpRow(), block), m_.k, block, column, grad_q_);
      AddRowsOf(m_.pairs.of_keys.Left(WarpRow(), block), m_.k, block, column, grad_k_);
    }
#pragma unroll 1
    for (int block = WarpRow(); block < kPiece; block += 16) {
      AddRowsOf(m_.pairs.of_reads.LeftOfTranspose(WarpRow(), block), m_.q, block, column, grad_k_);
      AddRowsOf(m_.pairs.of_keys.LeftOfTranspose(WarpRow(), block), m_.k, block, column, grad_k_);
    }
  }

  // Replaces `passed` by its sums over the tokens from i on, for each j within each quarter of the tokens. No
  // sum is computed by subtraction.
  __device__ void SumQuarters() {
    const int j = static_cast<int>(threadIdx.x) % kPiece;
    const int quarter = static_cast<int>(threadIdx.x) / kPiece;
    float sum = 0;
#pragma unroll
    for (int i = quarter * 16 + 15; i >= quarter * 16; --i) {
      sum += m_.pairs.passed[i][j];
      m_.pairs.passed[i][j] = sum;
    }
    m_.quarters[quarter][j] = sum;
  }

  // Computes `within`. Four threads have a token t, and each of them 16 tokens j.
  __device__ void SumWithin() {
    const int t = static_cast<int>(threadIdx.x) / 4;
    float sum = 0;
    for (int j = static_cast<int>(threadIdx.x) % 4 * 16, end = min(j + 16, t); j < end; ++j) {
      sum += m_.pairs.passed[t][j];
      for (int quarter = t / 16 + 1; quarter < 4; ++quarter) {
        sum += m_.quarters[quarter][j];
      }
    }
    sum = RowSum(sum);
    if (threadIdx.x % 4 == 0) {
      m_.within[t] = sum;
    }
  }

  // Does what DeltaGradientBlock::Finish does. A lane has two tokens.
  __device__ void Finish(int64_t head, float decay) const {
    float passed_on = 0;
    for (const float of_warp : m_.passed_on) {
      passed_on += of_warp;
    }
    float from_before[2];
    float to_behind[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int t = LaneOf() * 2 + k;
      from_before[k] = m_.from_before[0][t] + m_.from_before[1][t];
      to_behind[k] = m_.to_behind[0][t] + m_.to_behind[1][t];
    }
    float before = to_behind[0] + to_behind[1];    // over the tokens up to a lane's
    float rest = from_before[0] + from_before[1];  // over the tokens from a lane's on
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const float of_before = __shfl_up_sync(kEveryLane, before, lanes);
      const float of_rest = __shfl_down_sync(kEveryLane, rest, lanes);
      before += LaneOf() >= lanes ? of_before : 0.0F;
      rest += LaneOf() + lanes < 32 ? of_rest : 0.0F;
    }
    before = __shfl_up_sync(kEveryLane, before, 1);
    rest = __shfl_down_sync(kEveryLane, rest, 1);
    const float earlier = LaneOf() > 0 ? before : 0.0F;
    const float later = from_before[1] + (LaneOf() < 31 ? rest : 0.0F);
    const float a = -Exp(args_.a_log[head]);
    const int64_t column = key_head_ * 2 * s_.share() + head % s_.share();
    float of_bias = 0;
    float of_a = 0;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int t = LaneOf() * 2 + k;
      if (t >= piece_.tokens) {
        continue;
      }
      const float through = decay * passed_on + (k == 0 ? earlier : earlier + to_behind[0]) +
                            (k == 0 ? from_before[0] + later : later) + m_.within[t];
      const float of_decay = m_.factors.starts[t] == t ? 0.0F : through;
      const DeltaGate<float> gate(args_, piece_.row + t, head);
      const float of_beta = m_.read_of_state[0][t] + m_.read_of_state[1][t] + m_.read_of_tokens[0][t] +
                            m_.read_of_tokens[1][t] + m_.of_values[t];
      const float grad = a * of_decay * gate.slope;
      Bf16* const grad_ba = args_.grad_ba + (piece_.row + t) * args_.grad_ba_stride + column;
      Narrow(of_beta * gate.beta * (1 - gate.beta), grad_ba[0]);
      Narrow(grad, grad_ba[s_.share()]);
      of_bias += grad;
      of_a += gate.length * of_decay;
    }
    float* const partial = work_.partial + index_ * 2 * s_.value_heads + head;
    of_bias = WarpSum(of_bias);
    of_a = WarpSum(of_a);
    if (LaneOf() == 0) {
      partial[0] = of_bias;
      partial[s_.value_heads] = a * of_a;
    }
  }

  // Converts the gradient of x times its factor to that of x itself, which is divided by its length, so the
  // part along x vanishes. by: factor^2 * by = 1 / length^2. sums: memory of the block.
  __device__ void WriteDivided(const TokenKeys<kKey>& x, const LaneSums (&grad)[kColumns / 8],
                               const float (&factors)[kPiece], float by, float (&sums)[2][kPiece],
                               Bf16* to) const {
    const int column = WarpHalf() * kColumns + ColumnOfLane();
    const auto x_of = [&](int tile, int k) {
      return FloatsOf(
          *reinterpret_cast<const unsigned*>(&x.at[WarpRow() + RowOfLane() + 8 * k][column + tile * 8]));
    };
    float dots[2] = {};
#pragma unroll
    for (int tile = 0; tile < kColumns / 8; ++tile) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const float2 pair = x_of(tile, k);
        dots[k] += grad[tile][2 * k] * pair.x + grad[tile][2 * k + 1] * pair.y;
      }
    }
    WriteRows(dots, sums);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int t = WarpRow() + RowOfLane() + 8 * k;
      const float along = (sums[0][t] + sums[1][t]) * factors[t] * factors[t] * by;
#pragma unroll
      for (int tile = 0; tile < kColumns / 8; ++tile) {
        const float2 pair = x_of(tile, k);
        if (t < piece_.tokens) {
          *reinterpret_cast<unsigned*>(to + t * s_.keys() + column + tile * 8) =
              PairOf(grad[tile][2 * k] - along * pair.x, grad[tile][2 * k + 1] - along * pair.y);
        }
      }
    }
  }

  const GatedDeltaBackwardArgs<Bf16>& args_;
  const DeltaShape& s_;
  const TensorDeltaWork& work_;
  TensorDeltaMemory<kKey>& m_;
  const Piece& piece_;
  const int64_t index_;
  const int64_t key_head_;
  LaneSums grad_q_[kColumns / 8] = {};  // by what queries are multiplied by, before it is divided
  LaneSums grad_k_[kColumns / 8] = {};
};

}  // namespace tandem::ops::cuda
