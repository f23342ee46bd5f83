// SPDX-License-Identifier: Apache-2.0
// The backward of tensor_scan.cu: the states before all pieces and the adjoints after them, then the
// gradients piece by piece (tensor_scan_gradients.cuh).
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "ops/cuda/gpu_attributes.h"
#include "ops/cuda/tensor_scan.cuh"
#include "ops/cuda/tensor_scan.h"
#include "ops/cuda/tensor_scan_gradients.cuh"

namespace tandem::ops::cuda {
namespace {

template <int kState>
struct PassMemory {
  struct Tokens {
    PieceOfChannels channels;
    PieceOfState<kState> numbers;
  } tokens[2];
  Factors factors;
};

// Computes the states before the pieces of a chunk of a head, from the state that the forward kept; or with
// kAdjoint the adjoints after the pieces of a sequence, from the last to the first, beginning with zeros.
// Both are rounded: to[piece, head, kChannels, kState].
template <bool kAdjoint, int kState>
__global__ void __launch_bounds__(kScanThreads, 3)
    WriteStates(StateScanBackwardArgs<Bf16> args, TensorScanWork work, Bf16* to) {
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
  if constexpr (kAdjoint) {  // skips pieces after the end
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
__global__ void __launch_bounds__(kThreads, 2)
    TensorGradients(StateScanBackwardArgs<Bf16> args, TensorScanWork work) {
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
  GradientBlock<kState>(args, work, *reinterpret_cast<GradientMemory<kState>*>(dynamic), piece, index)
      .Run(group);
}

template <int kState>
int Backward(const StateScanBackwardArgs<Bf16>& args, Stream stream) {
  const ScanShape& s = args.shape;
  const TensorScanWork work(s, args.work.begin, /*backward=*/true);
  SumSteps<<<Blocks(Pieces(s) * s.heads), kThreads, 0, stream>>>(args, work.lengths, work.sums);
  LaunchWith<PassMemory<kState>>(WriteStates<false, kState>, s.sequences * s.chunks() * s.heads, kScanThreads,
                                 stream, args, work, work.states);
  LaunchWith<PassMemory<kState>>(WriteStates<true, kState>, s.sequences * s.heads, kScanThreads, stream, args,
                                 work, work.adjoints);
  LaunchWith<GradientMemory<kState>>(TensorGradients<kState>, Pieces(s) * s.groups, kThreads, stream, args,
                                     work);
  AddHeadSums(args, work.partial, stream);
  return cudaGetLastError();
}

}  // namespace

bool FitsTensorScan(const StateScanBackwardArgs<Bf16>& args) {
  return FitsBlock(args.shape.state == 128 ? sizeof(GradientMemory<128>) : sizeof(GradientMemory<64>),
                   {args.xbc, args.states, args.grad_y, args.grad_xbc, args.work.begin});
}

int LaunchTensorScan(const StateScanBackwardArgs<Bf16>& args, Stream stream) {
  return args.shape.state == 128 ? Backward<128>(args, stream) : Backward<64>(args, stream);
}

}  // namespace tandem::ops::cuda
