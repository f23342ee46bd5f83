// SPDX-License-Identifier: Apache-2.0
// Norms of query and key heads. A head is read once, in packs of 16 bytes where heads consist of such, by as
// many lanes of a warp as it has packs: a power of two, at most all.
#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"
#include "ops/row_work.h"

namespace tandem::ops::cuda {
namespace {

// Packs that a lane holds of the largest head.
template <int N>
constexpr int kHeldPacks = kMostGpuNormedHeadDim / 32 / N;

// Of a head that `lanes` lanes share, those of the calling one: every lanes-th.
template <typename E, int N>
struct HeldHead {
  Pack<E, N> packs[kHeldPacks<N>];

  template <typename Visit>  // visit(which of the held, which of the head)
  static __device__ void ForEach(int lanes, int count, const Visit& visit) {
#pragma unroll
    for (int j = 0; j < kHeldPacks<N>; ++j) {
      const int at = static_cast<int>(threadIdx.x) % lanes + j * lanes;
      if (at < count) {
        visit(j, at);
      }
    }
  }
};

// Over the lanes that share a head, the same on each; a tree of one shape. All lanes of the warp take part.
template <typename T>
__device__ T HeadSum(T value, int lanes) {
  for (int apart = lanes / 2; apart > 0; apart /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFF, value, apart);
  }
  return value;
}

// A block has a token.
template <int N, typename E>
__global__ void HeadNormToken(HeadNormArgs<E> args, int lanes) {
  using T = Arithmetic<E>;
  using Held = HeldHead<E, N>;
  const int64_t head_dim = args.head_dim;
  const int packs = static_cast<int>(head_dim) / N;
  const int queries = static_cast<int>(args.heads);
  const int normed = queries + static_cast<int>(args.kv_heads);
  const int all = normed + static_cast<int>(args.kv_heads);
  const int64_t token = static_cast<int64_t>(blockIdx.x) * all * head_dim;
  const int heads_at_once = kThreads / lanes;
  for (int first = 0; first < all; first += heads_at_once) {
    const int head = first + static_cast<int>(threadIdx.x) / lanes;
    const int count = head < all ? packs : 0;
    const E* const x = args.qkv + token + head * head_dim;
    Held held;
    T squares = 0;
    Held::ForEach(lanes, count, [&](int j, int at) {
      held.packs[j] = PackAt<E, N>(x, at);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        squares += Widen(held.packs[j].e[k]) * Widen(held.packs[j].e[k]);
      }
    });
    squares = HeadSum(squares, lanes);
    if (head < normed) {
      const E* const weight = head < queries ? args.query_weight : args.key_weight;
      const T r = 1 / sqrt(squares / static_cast<T>(head_dim) + static_cast<T>(args.epsilon));
      Held::ForEach(lanes, count, [&](int j, int at) {
        const Pack<E, N> w = PackAt<E, N>(weight, at);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          Narrow(Widen(held.packs[j].e[k]) * r * Widen(w.e[k]), held.packs[j].e[k]);
        }
      });
    }
    Held::ForEach(lanes, count,
                  [&](int j, int at) { SetPack(args.normed + token + head * head_dim, at, held.packs[j]); });
  }
}

// Of the normed heads of one kind: those of all tokens go in turns to the lanes of all blocks that share one.
// Returns in `sums`, [head_dim], the block's part of the gradient of their weight; partial: memory for each
// warp's. first_head: of a token. All threads of the block take part.
template <int N, typename E, typename T>
__device__ void HeadNormBackwardKind(const HeadNormBackwardArgs<E>& args, int lanes, int first_head,
                                     int heads, const E* weight, T (*partial)[kMostGpuNormedHeadDim],
                                     T* sums) {
  using Held = HeldHead<E, N>;
  const int64_t head_dim = args.head_dim;
  const T of_head_dim = 1 / static_cast<T>(head_dim);
  const int packs = static_cast<int>(head_dim) / N;
  const int64_t all = args.heads + 2 * args.kv_heads;
  const int heads_at_once = kThreads / lanes;
  const int64_t total = args.tokens * heads;
  const int64_t step = static_cast<int64_t>(gridDim.x) * heads_at_once;
  const int64_t step_tokens = step / heads;
  const int step_heads = static_cast<int>(step % heads);
  Held weights;
  Held::ForEach(lanes, packs, [&](int j, int at) { weights.packs[j] = PackAt<E, N>(weight, at); });

  // The lane's next head is read while the last one is computed.
  int64_t number = static_cast<int64_t>(blockIdx.x) * heads_at_once + threadIdx.x / lanes;
  int64_t token = number / heads;
  int head = static_cast<int>(number % heads);
  Held next_x;
  Held next_grad;
  const auto read = [&] {
    const int64_t begin = (token * all + first_head + head) * head_dim;
    Held::ForEach(lanes, number < total ? packs : 0, [&](int j, int at) {
      next_x.packs[j] = PackAt<E, N>(args.qkv + begin, at);
      next_grad.packs[j] = PackAt<E, N>(args.grad + begin, at);
    });
  };
  read();
  T own[kHeldPacks<N>][N] = {};
  // As many times in all lanes of a warp.
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * heads_at_once; first < total; first += step) {
    E* const to = args.grad + (token * all + first_head + head) * head_dim;
    const int count = number < total ? packs : 0;
    const Held x = next_x;
    Held grad = next_grad;
    number += step;
    token += step_tokens;
    head += step_heads;
    if (head >= heads) {
      head -= heads;
      ++token;
    }
    read();
    T squares = 0;
    T dot = 0;
    Held::ForEach(lanes, count, [&](int j, int) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const T value = Widen(x.packs[j].e[k]);
        squares += value * value;
        dot += Widen(grad.packs[j].e[k]) * value * Widen(weights.packs[j].e[k]);
      }
    });
    squares = HeadSum(squares, lanes);
    dot = HeadSum(dot, lanes);
    const T r = rsqrt(squares * of_head_dim + static_cast<T>(args.epsilon));
    const T shrink = r * r * r * (dot * of_head_dim);
    Held::ForEach(lanes, count, [&](int j, int at) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const T value = Widen(x.packs[j].e[k]);
        const T g = Widen(grad.packs[j].e[k]);
        own[j][k] += g * value * r;
        Narrow(g * (Widen(weights.packs[j].e[k]) * r) - value * shrink, grad.packs[j].e[k]);
      }
      SetPack(to, at, grad.packs[j]);
    });
  }

#pragma unroll
  for (int j = 0; j < kHeldPacks<N>; ++j) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      for (int apart = lanes; apart < 32; apart *= 2) {
        own[j][k] += __shfl_xor_sync(0xFFFFFFFF, own[j][k], apart);
      }
    }
  }
  __syncthreads();  // the last kind's readers
  if (static_cast<int>(threadIdx.x) % 32 < lanes) {
    Held::ForEach(lanes, packs, [&](int j, int at) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        partial[threadIdx.x / 32][at * N + k] = own[j][k];
      }
    });
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < head_dim; i += kThreads) {
    T sum = partial[0][i];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) {
      sum += partial[w][i];
    }
    sums[i] = sum;
  }
}

// kHeadNormGroups blocks run at once on an H100 where each of its multiprocessors has room for so many.
template <typename E, int N>
constexpr int kBlocksAtOnce = sizeof(Arithmetic<E>) == 4 && N > 1 ? 4 : 1;

// partial_sums: [blocks, 2 head_dim], of the queries' and then of the keys' weight.
template <int N, typename E, typename T = Arithmetic<E>>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce<E, N>)
    HeadNormBackwardHeads(HeadNormBackwardArgs<E> args, int lanes, T* partial_sums) {
  __shared__ T partial[kWarps][kMostGpuNormedHeadDim];
  T* const sums = partial_sums + blockIdx.x * 2 * args.head_dim;
  const int queries = static_cast<int>(args.heads);
  HeadNormBackwardKind<N>(args, lanes, 0, queries, args.query_weight, partial, sums);
  HeadNormBackwardKind<N>(args, lanes, queries, static_cast<int>(args.kv_heads), args.key_weight, partial,
                          sums + args.head_dim);
}

constexpr int kSumThreads = 1024;

// A block adds up 32 columns of the blocks' sums, a warp every 32nd row of them.
template <typename T>
__global__ void __launch_bounds__(kSumThreads)
    AddHeadSums(const T* partial_sums, int64_t blocks, int64_t head_dim, bool add, T* grad_query_weight,
                T* grad_key_weight) {
  __shared__ T sums[kSumThreads / 32][32];
  const int64_t column = blockIdx.x * 32 + threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  T sum = 0;
  if (column < 2 * head_dim) {
#pragma unroll 8
    for (int64_t block = warp; block < blocks; block += kSumThreads / 32) {
      sum += partial_sums[block * 2 * head_dim + column];
    }
  }
  sums[warp][threadIdx.x % 32] = sum;
  __syncthreads();
  if (warp > 0 || column >= 2 * head_dim) {
    return;
  }
#pragma unroll
  for (int other = 1; other < kSumThreads / 32; ++other) {
    sum += sums[other][threadIdx.x];
  }
  T& to = column < head_dim ? grad_query_weight[column] : grad_key_weight[column - head_dim];
  to = add ? to + sum : sum;
}

// How many share a head of so many packs.
int LanesOf(int64_t packs) {
  int lanes = 1;
  while (lanes < 32 && lanes < packs) {
    lanes *= 2;
  }
  return lanes;
}

}  // namespace

template <typename E>
int Launch(const HeadNormArgs<E>& args, Stream stream) {
  if (args.tokens == 0) {
    return cudaSuccess;
  }
  WithPacks<E>(
      {args.head_dim}, {args.qkv, args.normed, args.query_weight, args.key_weight}, [&]<int N>(Packed<N>) {
        HeadNormToken<N>
            <<<static_cast<unsigned>(args.tokens), kThreads, 0, stream>>>(args, LanesOf(args.head_dim / N));
      });
  return cudaGetLastError();
}
TANDEM_KERNEL(HeadNormArgs)

template <typename E>
int Launch(const HeadNormBackwardArgs<E>& args, Stream stream) {
  auto* const partial_sums = static_cast<Arithmetic<E>*>(args.work.begin);
  const int64_t blocks = std::min(args.tokens, kHeadNormGroups);
  if (blocks > 0) {
    WithPacks<E>({args.head_dim}, {args.qkv, args.grad, args.query_weight, args.key_weight},
                 [&]<int N>(Packed<N>) {
                   HeadNormBackwardHeads<N><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
                       args, LanesOf(args.head_dim / N), partial_sums);
                 });
  }
  AddHeadSums<<<static_cast<unsigned>((2 * args.head_dim + 31) / 32), kSumThreads, 0, stream>>>(
      partial_sums, blocks, args.head_dim, args.add_weights, args.grad_query_weight, args.grad_key_weight);
  return cudaGetLastError();
}
TANDEM_KERNEL(HeadNormBackwardArgs)

}  // namespace tandem::ops::cuda
