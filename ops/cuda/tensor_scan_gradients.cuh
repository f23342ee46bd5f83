// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/tensor_scan.cuh"

namespace tandem::ops::cuda {

// A block computes the heads of one group in a piece, one after the other. Warp w of eight has 16 tokens from
// 16 (w % 4) on and half w / 4 of the columns.
template <int kState>
class GradientBlock {
 public:
  __device__ GradientBlock(const StateScanBackwardArgs<Bf16>& args, const TensorScanWork& work,
                           GradientMemory<kState>& memory, const Piece& piece, int64_t index)
      : args_(args),
        s_(args.shape),
        work_(work),
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
    StartCopy<kThreads>(work_.states + state, kState, kChannels, m_.state);
    StartCopy<kThreads>(work_.adjoints + state, kState, kChannels, m_.adjoint);
    reader.Read(args_, work_, piece_, head);
  }

  // Writes `weights` and `products`, and adds W to the sums of its rows and columns.
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

  // Writes the sums of a lane's two rows over the lanes that have the same rows.
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

  // dC_i = sum_j weights[i, j] B_j + the part through the state before the piece.
  __device__ void AddGradC() {
    for (int block = 0; block * 16 <= row_; ++block) {
      AddRows(m_.weights.Left(row_, block * 16), m_.b, block * 16, grad_c_);
    }
    float sums[2] = {};
    AddThroughState(m_.grad_y, m_.state, m_.c, factors_->from_before, /*lengths=*/nullptr, grad_c_, sums);
    WriteRows(sums, m_.from_before[half_]);
  }

  // dB_j = sum_i weights[i, j] C_i + the part through the state after the piece.
  __device__ void AddGradB() {
#pragma unroll 1
    for (int block = row_ / 16; block < kBlocks; ++block) {
      AddRows(m_.weights.LeftOfTranspose(row_, block * 16), m_.c, block * 16, grad_b_);
    }
    float sums[2] = {};
    AddThroughState(m_.x, m_.adjoint, m_.b, factors_->to_behind, factors_->lengths, grad_b_, sums);
    WriteRows(sums, m_.to_behind[half_]);
  }

  // to += left * rows [k, k + 16) of the warp's half of `numbers`.
  __device__ void AddRows(const Fragment& left, const PieceOfState<kState>& numbers, int k,
                          LaneSums (&to)[kTiles]) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; tile += 2) {
      AddProduct(left, numbers.Right(k, half_ * (kState / 2) + tile * 8), to[tile], to[tile + 1]);
    }
  }

  // Computes for each token t of the warp v = factors[t] * matrix^T * (its channels). to += v, times
  // lengths[t] unless `lengths` is null; sums += v · (its numbers).
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

  // The gradient of a token's exponent is a sum over everything that decays through the token. It decays from
  // the state before the piece, or from earlier tokens, to later tokens (W) or to the state after the piece.
  // Nothing decays through the first token of a document. A lane has two tokens.
  __device__ void FinishHead(int64_t head, float decay) const {
    float passed = 0;
    for (const float of_warp : m_.passed) {
      passed += of_warp;
    }
    float through[2];  // to_behind_j (x_j · G B_j)
    float columns[2];
    float to_behind[2];
    float behind[2];  // of the decays to this token
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
    float before = to_behind[0] + to_behind[1];  // over the tokens up to a lane's
    float rest = behind[0] + behind[1];          // over the tokens from a lane's on
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
      // The derivative of softplus, by its value.
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
  const TensorScanWork& work_;
  GradientMemory<kState>& m_;
  const Piece& piece_;
  const int64_t index_;
  const int row_;
  const int half_;
  const Factors* factors_ = nullptr;  // of the head
  LaneSums grad_b_[kTiles] = {};
  LaneSums grad_c_[kTiles] = {};
};

}  // namespace tandem::ops::cuda
