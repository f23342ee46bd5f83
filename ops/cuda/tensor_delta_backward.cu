// SPDX-License-Identifier: Apache-2.0
// The backward of tensor_delta.cu, computed like that of gated_delta_backward.cu: the states before all
// pieces and the adjoints after them, then the gradients piece by piece (tensor_delta_gradients.cuh).
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/gpu_attributes.h"
#include "ops/cuda/partial_sums.cuh"
#include "ops/cuda/tensor_delta.cuh"
#include "ops/cuda/tensor_delta.h"
#include "ops/cuda/tensor_delta_gradients.cuh"
#include "ops/cuda/tensor_delta_pass.cuh"

namespace tandem::ops::cuda {
namespace {

// Computes, from the adjoints after pieces, the gradients of R and of values, and the adjoints before them,
// in reverse order. A block has kValues channels of a head of a sequence.
template <int kKey>
__global__ void __launch_bounds__(kThreads, 1)
    PassTensorAdjoints(GatedDeltaBackwardArgs<Bf16> args, TensorDeltaWork work) {
  constexpr int kKeyColumns = kKey / 2;  // of a warp
  constexpr int kColumns = kValues / 2;
  extern __shared__ __align__(16) unsigned char dynamic[];
  auto& m = *reinterpret_cast<DeltaPassMemory<kKey>*>(dynamic);
  const DeltaShape& s = args.shape;
  const int64_t tiles = s.value_dim / kValues;
  const int64_t head = blockIdx.x / tiles % s.value_heads;
  const int64_t of_values = head * s.value_dim + blockIdx.x % tiles * kValues;  // among a token's
  const int64_t of_keys = head / s.share() * kKey;
  const int64_t pieces = PiecesOfSequence(s);
  const int64_t first = blockIdx.x / (tiles * s.value_heads) * pieces;
  const int64_t of_state = of_values * kKey + WarpHalf() * kKeyColumns;
  const int column = WarpHalf() * kColumns;
  const auto at = [&](int64_t step) { return first + pieces - 1 - step; };

  DeltaFactorReader reader;
  const auto read = [&](const Piece& piece, int64_t step) {
    auto& to = m.tokens[step % 2];
    const int64_t matrix = (at(step) * s.value_heads + head) * kPiece * kPiece;
    reader.Read(args, work, piece, head, static_cast<int>(threadIdx.x));
    StartCopy<kThreads>(args.k + piece.row * s.keys() + of_keys, s.keys(), piece.tokens, to.k);
    StartCopy<kThreads>(args.q + piece.row * s.keys() + of_keys, s.keys(), piece.tokens, to.q);
    StartCopy<kThreads>(args.grad_y + piece.row * s.values() + of_values, s.values(), piece.tokens,
                        to.values);
    StartCopy<kThreads>(work.solved + matrix, kPiece, kPiece, to.solved);
    StartCopy<kThreads>(work.reads + matrix, kPiece, kPiece, to.reads);
  };

  int64_t step = 0;
  while (Piece(s, at(step)).tokens == 0) {  // after the end
    ++step;
  }
  Piece piece(s, at(step));
  read(piece, step);
  ValueStateSums<kKey> adjoint = {};
  for (;;) {
    RoundInto(adjoint, kValues, kKey, work.adjoints + at(step) * s.state() + of_state);
    RoundInto(adjoint, WarpHalf() * kKeyColumns, m.state);
    const DeltaFactors& factors = m.factors[step % 2];
    auto& tokens = m.tokens[step % 2];
    const float decay = reader.Decay();
    reader.Write(m.factors[step % 2]);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    const Piece now = piece;
    const bool last = ++step == pieces;
    if (!last) {
      piece = Piece(s, at(step));
      read(piece, step);
    }

    LaneSums grad_written[kColumns / 8] = {};
#pragma unroll
    for (int n = 0; n < kKey; n += 16) {
      AddColumnsOf(tokens.k.Left(WarpRow(), n), m.state, n, column, grad_written);
    }
    ScaleRows(factors.written_by_k, grad_written);
    for (int block = WarpRow(); block < kPiece; block += 16) {
      AddRowsOf(tokens.reads.LeftOfTranspose(WarpRow(), block), tokens.values, block, column, grad_written);
    }
    RoundInto(grad_written, column, m.written);
    __syncthreads();
    LaneSums grad_right[kColumns / 8] = {};
    for (int block = WarpRow(); block < kPiece; block += 16) {
      AddRowsOf(tokens.solved.LeftOfTranspose(WarpRow(), block), m.written, block, column, grad_right);
    }
    RoundInto(grad_right, column, tokens.reads);  // `reads` is not used any more
    const int64_t row = now.row * s.values() + of_values + column;
    RoundInto(grad_right, now.tokens, s.values(), work.grad_right + row);
    ScaleRows(factors.betas, grad_right);
    RoundInto(grad_right, now.tokens, s.values(), args.grad_v + row);
    if (last) {
      return;
    }
    __syncthreads();
#pragma unroll
    for (auto& sums : adjoint) {
#pragma unroll
      for (float& sum : sums) {
        sum *= decay;
      }
    }
    AddToState<kKey>(tokens.values, tokens.q, factors.read_by_q, adjoint);
    AddToState<kKey>(tokens.reads, tokens.k, factors.missed_by_k, adjoint);
  }
}

template <int kKey>
__global__ void __launch_bounds__(kThreads, 1)
    WriteTensorDeltaGradients(GatedDeltaBackwardArgs<Bf16> args, TensorDeltaWork work) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  const DeltaShape& s = args.shape;
  const int64_t index = blockIdx.x / s.key_heads;
  const int64_t key_head = blockIdx.x % s.key_heads;
  const Piece piece(s, index);
  if (piece.tokens == 0) {
    for (int64_t i = threadIdx.x; i < 2 * s.share(); i += kThreads) {
      work.partial[(index * 2 + i / s.share()) * s.value_heads + key_head * s.share() + i % s.share()] = 0;
    }
    return;
  }
  TensorDeltaBlock<kKey>(args, work, *reinterpret_cast<TensorDeltaMemory<kKey>*>(dynamic), piece, index,
                         key_head)
      .Run();
}

template <int kKey>
int Backward(const GatedDeltaBackwardArgs<Bf16>& args, Stream stream) {
  const DeltaShape& s = args.shape;
  const TensorDeltaWork work = TensorDeltaWork::OfBackward(s, args.work.begin);
  const int64_t tiles = s.value_heads * (s.value_dim / kValues);
  LaunchTensorMatrices(args, work, stream);
  LaunchWith<PassOfDelta<kKey, GatedDeltaBackwardArgs<Bf16>>>(
      PassTensorDelta<kKey, GatedDeltaBackwardArgs<Bf16>>, s.sequences * s.chunks() * tiles, kThreads, stream,
      args, work);
  LaunchWith<DeltaPassMemory<kKey>>(PassTensorAdjoints<kKey>, s.sequences * tiles, kThreads, stream, args,
                                    work);
  LaunchWith<TensorDeltaMemory<kKey>>(WriteTensorDeltaGradients<kKey>, Pieces(s) * s.key_heads, kThreads,
                                      stream, args, work);
  AddDeltaSums(args, work.partial, stream);
  return cudaGetLastError();
}

template <int kKey>
constexpr int kMostShared = std::max(sizeof(DeltaPassMemory<kKey>), sizeof(TensorDeltaMemory<kKey>));

}  // namespace

bool FitsTensorDelta(const GatedDeltaBackwardArgs<Bf16>& args) {
  return FitsBlock(args.shape.key_dim == 128 ? kMostShared<128> : kMostShared<64>,
                   {args.q, args.k, args.v, args.states, args.grad_y, args.grad_q, args.grad_k, args.grad_v,
                    args.work.begin});
}

int LaunchTensorDelta(const GatedDeltaBackwardArgs<Bf16>& args, Stream stream) {
  return args.shape.key_dim == 128 ? Backward<128>(args, stream) : Backward<64>(args, stream);
}

}  // namespace tandem::ops::cuda
