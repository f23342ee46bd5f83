// SPDX-License-Identifier: Apache-2.0
// The forward of the scan on tensor cores (tensor_scan.cuh).
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "ops/cuda/gpu_attributes.h"
#include "ops/cuda/tensor_scan.cuh"
#include "ops/cuda/tensor_scan.h"

namespace tandem::ops::cuda {
namespace {

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

// A block computes a head of a sequence, piece after piece.
template <int kState>
__global__ void __launch_bounds__(kScanThreads, 2)
    ScanForward(StateScanArgs<Bf16> args, TensorScanWork work) {
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
int Forward(const StateScanArgs<Bf16>& args, Stream stream) {
  const ScanShape& s = args.shape;
  const TensorScanWork work(s, args.work.begin, /*backward=*/false);
  SumSteps<<<Blocks(Pieces(s) * s.heads), kThreads, 0, stream>>>(args, work.lengths, work.sums);
  LaunchWith<ForwardMemory<kState>>(ScanForward<kState>, s.sequences * s.heads, kScanThreads, stream, args,
                                    work);
  return cudaGetLastError();
}

}  // namespace

bool FitsTensorScan(const StateScanArgs<Bf16>& args) {
  return FitsBlock(args.shape.state == 128 ? sizeof(ForwardMemory<128>) : sizeof(ForwardMemory<64>),
                   {args.xbc, args.y, args.states, args.work.begin});
}

int LaunchTensorScan(const StateScanArgs<Bf16>& args, Stream stream) {
  return args.shape.state == 128 ? Forward<128>(args, stream) : Forward<64>(args, stream);
}

}  // namespace tandem::ops::cuda
