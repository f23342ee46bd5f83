// SPDX-License-Identifier: Apache-2.0
// Gated delta nets on tensor cores (tensor_delta.cuh). Each piece's system is solved by itself; then a block
// passes value channels of a head from piece to piece, and writes their outputs.
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "ops/cuda/gpu_attributes.h"
#include "ops/cuda/tensor_delta.cuh"
#include "ops/cuda/tensor_delta.h"
#include "ops/cuda/tensor_delta_pass.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kSolveThreads = 128;

// The inputs from which matrices of tokens are computed.
struct DeltaTokens {
  DeltaShape shape;
  DocumentStarts documents;
  const Bf16* q;
  const Bf16* k;
};

template <int kKey>
struct SolveMemory {
  TokenKeys<kKey> k;
  TokenKeys<kKey> q;
  struct Head {
    float matrix[kPiece][kPiece + 4];  // A
    DeltaFactors factors;
  } heads[kSolveThreads / kPiece];
};

// Computes a column of the inverse of 1 + A with one thread.
__device__ void SolveColumn(const float (&matrix)[kPiece][kPiece + 4], int column, Bf16* inverse) {
  float elements[kPiece];
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    float sums[4] = {i == column ? 1.0F : 0.0F, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 of_row = *reinterpret_cast<const float4*>(&matrix[i][j]);
      const float row[4] = {of_row.x, of_row.y, of_row.z, of_row.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (j + k < i) {
          sums[k] -= row[k] * elements[j + k];
        }
      }
    }
    elements[i] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    Narrow(elements[i], inverse[i * kPiece + column]);
  }
}

// A block has the value heads of a key head in a piece, two at a time. Warp w of four has tokens [16 w, ...)
// of the matrices, and a thread a column of an inverse.
template <int kKey>
__global__ void __launch_bounds__(kSolveThreads) SolveTensor(DeltaTokens args, TensorDeltaWork work) {
  constexpr int kTogether = kSolveThreads / kPiece;
  extern __shared__ __align__(16) unsigned char dynamic[];
  auto& m = *reinterpret_cast<SolveMemory<kKey>*>(dynamic);
  const DeltaShape& s = args.shape;
  const int64_t index = blockIdx.x / s.key_heads;
  const int64_t key_head = blockIdx.x % s.key_heads;
  const Piece piece(s, index);
  if (piece.tokens == 0) {
    return;
  }
  const int64_t of_keys = piece.row * s.keys() + key_head * kKey;
  StartCopy<kSolveThreads>(args.k + of_keys, s.keys(), piece.tokens, m.k);
  StartCopy<kSolveThreads>(args.q + of_keys, s.keys(), piece.tokens, m.q);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  LaneSums of_k[kPiece / 8] = {};
  LaneSums of_q[kPiece / 8] = {};
#pragma unroll
  for (int n = 0; n < kKey; n += 16) {
    AddColumnsOf(m.k.Left(WarpRow(), n), m.k, n, 0, of_k);
    AddColumnsOf(m.q.Left(WarpRow(), n), m.k, n, 0, of_q);
  }
  const int own = static_cast<int>(threadIdx.x) / kPiece;  // among the heads that are solved together
  for (int64_t begin = 0; begin < s.share(); begin += kTogether) {
    const int count = static_cast<int>(min(s.share() - begin, static_cast<int64_t>(kTogether)));
    const int64_t first = index * s.value_heads + key_head * s.share() + begin;  // among all pieces' heads
    if (own < count) {
      DeltaFactorReader reader;
      reader.Read(args, work, piece, key_head * s.share() + begin + own,
                  static_cast<int>(threadIdx.x) % kPiece);
      reader.Write(m.heads[own].factors);
    }
    __syncthreads();
    for (int h = 0; h < count; ++h) {
      const DeltaFactors& factors = m.heads[h].factors;
      Bf16* const reads = work.reads + (first + h) * kPiece * kPiece;
#pragma unroll
      for (int tile = 0; tile < kPiece / 8; ++tile) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int i = WarpRow() + RowOfLane() + 8 * k;
          const int j = tile * 8 + ColumnOfLane();
          float of_reads[2];
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            const float decay = factors.Decay(i, j + c) * factors.of_k[j + c];
            const float element = factors.betas[i] * factors.of_k[i] * decay * of_k[tile][2 * k + c];
            m.heads[h].matrix[i][j + c] = j + c < i ? element : 0.0F;
            of_reads[c] = factors.of_q[i] * decay * of_q[tile][2 * k + c];
          }
          *reinterpret_cast<unsigned*>(reads + i * kPiece + j) = PairOf(of_reads[0], of_reads[1]);
        }
      }
    }
    __syncthreads();
    if (own < count) {
      SolveColumn(m.heads[own].matrix, static_cast<int>(threadIdx.x) % kPiece,
                  work.solved + (first + own) * kPiece * kPiece);
    }
    __syncthreads();
  }
}

template <int kKey>
int Forward(const GatedDeltaArgs<Bf16>& args, Stream stream) {
  const DeltaShape& s = args.shape;
  const TensorDeltaWork work(s, args.work.begin);
  LaunchTensorMatrices(args, work, stream);
  LaunchWith<DeltaPassMemory<kKey>>(PassTensorDelta<kKey, GatedDeltaArgs<Bf16>>,
                                    s.sequences * s.value_heads * (s.value_dim / kValues), kThreads, stream,
                                    args, work);
  return cudaGetLastError();
}

}  // namespace

template <typename Args>
void LaunchTensorMatrices(const Args& args, const TensorDeltaWork& work, Stream stream) {
  const DeltaShape& s = args.shape;
  SumDecays<<<Blocks(Pieces(s) * s.value_heads), kThreads, 0, stream>>>(args, work.sums, work.betas);
  MeasureLengths<<<Blocks(s.tokens() * s.key_heads * 32), kThreads, 0, stream>>>(args, work.of_q, work.of_k);
  const DeltaTokens tokens{.shape = s, .documents = args.documents, .q = args.q, .k = args.k};
  if (s.key_dim == 128) {
    LaunchWith<SolveMemory<128>>(SolveTensor<128>, Pieces(s) * s.key_heads, kSolveThreads, stream, tokens,
                                 work);
  } else {
    LaunchWith<SolveMemory<64>>(SolveTensor<64>, Pieces(s) * s.key_heads, kSolveThreads, stream, tokens,
                                work);
  }
}
template void LaunchTensorMatrices(const GatedDeltaArgs<Bf16>&, const TensorDeltaWork&, Stream);
template void LaunchTensorMatrices(const GatedDeltaBackwardArgs<Bf16>&, const TensorDeltaWork&, Stream);

bool FitsTensorDelta(const GatedDeltaArgs<Bf16>& args) {
  return FitsBlock(args.shape.key_dim == 128 ? sizeof(DeltaPassMemory<128>) : sizeof(DeltaPassMemory<64>),
                   {args.q, args.k, args.v, args.y, args.states, args.work.begin});
}

int LaunchTensorDelta(const GatedDeltaArgs<Bf16>& args, Stream stream) {
  return args.shape.key_dim == 128 ? Forward<128>(args, stream) : Forward<64>(args, stream);
}

}  // namespace tandem::ops::cuda
