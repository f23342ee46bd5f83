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
  const int64_t token = blockIdx.x * all * head_dim;
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

// kHeadNormGroups blocks run at once on an H100 where each of its multiprocessors has room for so many.
template <typename E, int N>
constexpr int kBlocksAtOnce = sizeof(Arithmetic<E>) == 4 && N > 1 ? 4 : 1;

// The heads of all tokens go in turns to the lanes of all blocks that share one. partial_sums: [blocks, 2
// head_dim], of the queries' and then of the keys' weight.
template <int N, typename E, typename T = Arithmetic<E>>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce<E, N>)
    HeadNormBackwardHeads(HeadNormBackwardArgs<E> args, int lanes, T* partial_sums) {
  using Held = HeldHead<E, N>;
  __shared__ T sums[kWarps][2 * kMostGpuNormedHeadDim];
  const int64_t head_dim = args.head_dim;
  const int packs = static_cast<int>(head_dim) / N;
  const int normed = static_cast<int>(args.heads + args.kv_heads);
  const int all = normed + static_cast<int>(args.kv_heads);
  const int heads_at_once = kThreads / lanes;
  const int64_t total = args.tokens * normed;
  const int64_t step = static_cast<int64_t>(gridDim.x) * heads_at_once;
  const int64_t step_tokens = step / normed;
  const int step_heads = static_cast<int>(step % normed);

  // Those of the lane's next head, which is read while the last one is computed.
  int64_t number = static_cast<int64_t>(blockIdx.x) * heads_at_once + threadIdx.x / lanes;
  int64_t token = number / normed;
  int head = static_cast<int>(number % normed);
  Held next_x;
  Held next_grad;
  const auto read = [&] {
    const int64_t begin = (token * all + head) * head_dim;
    Held::ForEach(lanes, number < total ? packs : 0, [&](int j, int at) {
      next_x.packs[j] = PackAt<E, N>(args.qkv + begin, at);
      next_grad.packs[j] = PackAt<E, N>(args.grad + begin, at);
    });
  };
  read();
  T own[2][kHeldPacks<N>][N] = {};
  // As many times in all lanes of a warp.
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * heads_at_once; first < total; first += step) {
    const int64_t begin = (token * all + head) * head_dim;
    const int count = number < total ? packs : 0;
    const bool is_key = head >= args.heads;
    const E* const weight = is_key ? args.key_weight : args.query_weight;
    const Held x = next_x;
    Held grad = next_grad;
    number += step;
    token += step_tokens;
    head += step_heads;
    if (head >= normed) {
      head -= normed;
      ++token;
    }
    read();
    T squares = 0;
    T dot = 0;
    Held::ForEach(lanes, count, [&](int j, int at) {
      const Pack<E, N> w = PackAt<E, N>(weight, at);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const T value = Widen(x.packs[j].e[k]);
        squares += value * value;
        dot += Widen(grad.packs[j].e[k]) * value * Widen(w.e[k]);
      }
    });
    squares = HeadSum(squares, lanes);
    dot = HeadSum(dot, lanes);
    const T r = 1 / sqrt(squares / static_cast<T>(head_dim) + static_cast<T>(args.epsilon));
    const T shrink = r * r * r * dot / static_cast<T>(head_dim);
    Held::ForEach(lanes, count, [&](int j, int at) {
      const Pack<E, N> w = PackAt<E, N>(weight, at);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const T value = Widen(x.packs[j].e[k]);
        const T g = Widen(grad.packs[j].e[k]);
        const T of_weight = g * value * r;
        own[0][j][k] += is_key ? T{0} : of_weight;
        own[1][j][k] += is_key ? of_weight : T{0};
        Narrow(g * Widen(w.e[k]) * r - value * shrink, grad.packs[j].e[k]);
      }
      SetPack(args.grad + begin, at, grad.packs[j]);
    });
  }

#pragma unroll
  for (int of_keys = 0; of_keys < 2; ++of_keys) {
#pragma unroll
    for (int j = 0; j < kHeldPacks<N>; ++j) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        for (int apart = lanes; apart < 32; apart *= 2) {
          own[of_keys][j][k] += __shfl_xor_sync(0xFFFFFFFF, own[of_keys][j][k], apart);
        }
      }
    }
  }
  if (static_cast<int>(threadIdx.x) % 32 < lanes) {
    Held::ForEach(lanes, packs, [&](int j, int at) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        sums[threadIdx.x / 32][at * N + k] = own[0][j][k];
        sums[threadIdx.x / 32][head_dim + at * N + k] = own[1][j][k];
      }
    });
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < 2 * head_dim; i += kThreads) {
    T sum = sums[0][i];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) {
      sum += sums[w][i];
    }
    partial_sums[blockIdx.x * 2 * head_dim + i] = sum;
  }
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
