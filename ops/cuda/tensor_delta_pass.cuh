// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_pipeline.h>

#include <cstdint>
#include <type_traits>

#include "ops/cuda/tensor_delta.cuh"

namespace tandem::ops::cuda {

// The blocks of a backward read no queries, because they write no outputs.
template <int kKey, typename Args>
using PassOfDelta =
    DeltaPassMemory<kKey, std::conditional_t<std::is_same_v<Args, GatedDeltaBackwardArgs<Bf16>>,
                                             WritingTokens<kKey>, ReadingTokens<kKey>>>;

// Computes piece by piece, from the state before a piece, what its tokens write and the state after it. In a
// forward, a block has a sequence, keeps the states before chunks and writes outputs. In a backward, a block
// has a chunk, begins with the kept state, and writes the rounded states before pieces and what tokens write.
template <int kKey, typename Args>
__global__ void __launch_bounds__(kThreads, std::is_same_v<Args, GatedDeltaBackwardArgs<Bf16>> ? 2 : 1)
    PassTensorDelta(Args args, TensorDeltaWork work) {
  constexpr bool kBackward = std::is_same_v<Args, GatedDeltaBackwardArgs<Bf16>>;
  constexpr int kKeyColumns = kKey / 2;  // of a warp
  constexpr int kColumns = kValues / 2;
  extern __shared__ __align__(16) unsigned char dynamic[];
  auto& m = *reinterpret_cast<PassOfDelta<kKey, Args>*>(dynamic);
  const DeltaShape& s = args.shape;
  const int64_t tiles = s.value_dim / kValues;
  const int64_t head = blockIdx.x / tiles % s.value_heads;
  const int64_t of_values = head * s.value_dim + blockIdx.x % tiles * kValues;  // among a token's
  const int64_t of_keys = head / s.share() * kKey;
  const int64_t pieces = kBackward ? PiecesOfChunk(s) : PiecesOfSequence(s);
  const int64_t first = blockIdx.x / (tiles * s.value_heads) * pieces;
  const int64_t of_state = of_values * kKey + (WarpRow() + RowOfLane()) * kKey + WarpHalf() * kKeyColumns;
  const int column = WarpHalf() * kColumns;

  DeltaFactorReader reader;
  const auto read = [&](const Piece& piece, int64_t step) {
    auto& to = m.tokens[step % 2];
    const int64_t matrix = ((first + step) * s.value_heads + head) * kPiece * kPiece;
    reader.Read(args, work, piece, head, static_cast<int>(threadIdx.x));
    StartCopy<kThreads>(args.k + piece.row * s.keys() + of_keys, s.keys(), piece.tokens, to.k);
    StartCopy<kThreads>(args.v + piece.row * s.values() + of_values, s.values(), piece.tokens, to.values);
    StartCopy<kThreads>(work.solved + matrix, kPiece, kPiece, to.solved);
    if constexpr (!kBackward) {
      StartCopy<kThreads>(args.q + piece.row * s.keys() + of_keys, s.keys(), piece.tokens, to.q);
      StartCopy<kThreads>(work.reads + matrix, kPiece, kPiece, to.reads);
    }
  };
  // Calls visit(place, first, second) for each pair of neighbours of a lane's part of the state.
  ValueStateSums<kKey> state = {};
  const auto each_pair = [&](const auto& visit) {
#pragma unroll
    for (int tile = 0; tile < kKeyColumns / 8; ++tile) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        visit(of_state + 8 * k * kKey + tile * 8 + ColumnOfLane(), state[tile][2 * k],
              state[tile][2 * k + 1]);
      }
    }
  };

  Piece piece(s, first);
  if (piece.tokens == 0) {
    return;
  }
  if constexpr (kBackward) {
    const float* const kept = args.states + piece.chunk_index * s.state();
    each_pair([&](int64_t at, float& one, float& other) {
      const float2 pair = *reinterpret_cast<const float2*>(kept + at);
      one = pair.x;
      other = pair.y;
    });
  }
  read(piece, 0);
  for (int64_t step = 0;;) {
    if constexpr (kBackward) {
      Bf16* const rounded = work.states + (first + step) * s.state();
      each_pair([&](int64_t at, float one, float other) {
        *reinterpret_cast<unsigned*>(rounded + at) = PairOf(one, other);
      });
    } else if (piece.begins_chunk) {
      float* const kept = args.states + piece.chunk_index * s.state();
      each_pair([&](int64_t at, float one, float other) {
        *reinterpret_cast<float2*>(kept + at) = {one, other};
      });
    }
    RoundInto(state, WarpHalf() * kKeyColumns, m.state);
    const DeltaFactors& factors = m.factors[step % 2];
    auto& tokens = m.tokens[step % 2];
    const float decay = reader.Decay();
    reader.Write(m.factors[step % 2]);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    const Piece now = piece;
    const bool last = ++step == pieces || (piece = Piece(s, first + step)).tokens == 0;
    if (!last) {
      read(piece, step);
    }

    LaneSums of_k[kColumns / 8] = {};  // S^T k of the keys as they are given
    LaneSums y[kColumns / 8] = {};
#pragma unroll
    for (int n = 0; n < kKey; n += 16) {
      AddColumnsOf(tokens.k.Left(WarpRow(), n), m.state, n, column, of_k);
      if constexpr (!kBackward) {
        AddColumnsOf(tokens.q.Left(WarpRow(), n), m.state, n, column, y);
      }
    }
#pragma unroll
    for (int tile = 0; tile < kColumns / 8; ++tile) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {  // R takes the place of the values
        const int t = WarpRow() + RowOfLane() + 8 * k;
        auto& pair = *reinterpret_cast<unsigned*>(&tokens.values.at[t][column + tile * 8 + ColumnOfLane()]);
        const float2 v = FloatsOf(pair);
        pair = PairOf(factors.betas[t] * v.x + factors.missed_by_k[t] * of_k[tile][2 * k],
                      factors.betas[t] * v.y + factors.missed_by_k[t] * of_k[tile][2 * k + 1]);
      }
    }
    __syncthreads();
    LaneSums written[kColumns / 8] = {};
    for (int block = 0; block <= WarpRow(); block += 16) {
      AddRowsOf(tokens.solved.Left(WarpRow(), block), tokens.values, block, column, written);
    }
    RoundInto(written, column, m.written);
    if constexpr (kBackward) {
      RoundInto(written, now.tokens, s.values(), work.written + now.row * s.values() + of_values + column);
    }
    __syncthreads();
    if constexpr (!kBackward) {
      ScaleRows(factors.read_by_q, y);
      for (int block = 0; block <= WarpRow(); block += 16) {
        AddRowsOf(tokens.reads.Left(WarpRow(), block), m.written, block, column, y);
      }
      RoundInto(y, now.tokens, s.values(), args.y + now.row * s.values() + of_values + column);
    }
    if (last) {
      return;
    }
    each_pair([&](int64_t, float& one, float& other) {
      one *= decay;
      other *= decay;
    });
    AddToState<kKey>(m.written, tokens.k, factors.written_by_k, state);
  }
}

}  // namespace tandem::ops::cuda
