// SPDX-License-Identifier: Apache-2.0
// The layout of latent attention's heads. A block moves one token, in packs of 16 bytes if the parts of
// heads consist of these.
#include <cuda_runtime.h>

#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"
#include "ops/latent_heads.h"

namespace tandem::ops::cuda {
namespace {

// Sizes of a head in packs of N elements. A packed query or key has two halves, each with half of the rotary
// part and half of the content; a half has every second dim of the rotary part.
template <int N>
struct HeadPacks {
  int heads;
  int content;  // packs of the content
  int turned;   // packs of half the rotary part
  int half;     // packs of half a packed head
  int value;

  explicit __device__ HeadPacks(const LatentHeads& h)
      : heads(static_cast<int>(h.heads)),
        content(static_cast<int>(h.content) / N),
        turned(static_cast<int>(h.rotary) / 2 / N),
        half(static_cast<int>(h.content + h.rotary) / 2 / N),
        value(static_cast<int>(h.value) / N) {}

  __device__ int query() const { return 2 * half; }
  __device__ int key_value() const { return content + value; }
  // Returns the place of a pack of the content in a packed head.
  __device__ int OfContent(int pack) const {
    const int rest = half - turned;
    return pack < rest ? turned + pack : half + turned + pack - rest;
  }
};

// Calls visit(head, pack) for all packs of all heads, in turn among the threads of the block.
template <typename Visit>
__device__ void ForEachPack(int heads, int packs, const Visit& visit) {
  const int all = heads * packs;
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < all; i += kThreads) {
    visit(i / packs, i % packs);
  }
}

// Separates dims 2 i and 2 i + 1 of two neighbouring packs; the second function is the inverse.
template <typename E, int N>
__device__ void Separate(const Pack<E, N>* pairs, Pack<E, N>& first, Pack<E, N>& second) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    first.e[k] = pairs[2 * k / N].e[2 * k % N];
    second.e[k] = pairs[(2 * k + 1) / N].e[(2 * k + 1) % N];
  }
}
template <typename E, int N>
__device__ void Join(const Pack<E, N>& first, const Pack<E, N>& second, Pack<E, N>* pairs) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    pairs[2 * k / N].e[2 * k % N] = first.e[k];
    pairs[(2 * k + 1) / N].e[(2 * k + 1) % N] = second.e[k];
  }
}

template <int N, typename E>
__global__ void PackToken(PackLatentHeadsArgs<E> args) {
  const HeadPacks<N> p(args.heads);
  const int64_t token = blockIdx.x;
  const int64_t queries = static_cast<int64_t>(p.heads) * p.query() * N;
  const E* const query = args.query + token * queries;
  const E* const key_value = args.key_value + token * p.heads * p.key_value() * N;
  const E* const key_rotary = args.down + (token + 1) * args.down_columns - args.heads.rotary;
  E* const packed_query = args.qkv + token * 3 * queries;
  E* const packed_key = packed_query + queries;
  E* const packed_value = packed_key + queries;
  ForEachPack(p.heads, p.content, [&](int head, int pack) {
    const int to = head * p.query() + p.OfContent(pack);
    const Pack<E, N> of_query = PackAt<E, N>(query, head * p.query() + pack);
    const Pack<E, N> of_key = PackAt<E, N>(key_value, head * p.key_value() + pack);
    SetPack(packed_query, to, of_query);
    SetPack(packed_key, to, of_key);
  });
  ForEachPack(p.heads, p.turned, [&](int head, int pack) {
    const auto turn = [&](const E* rotary, int begin, E* packed) {
      const Pack<E, N> pairs[2] = {PackAt<E, N>(rotary, begin + 2 * pack),
                                   PackAt<E, N>(rotary, begin + 2 * pack + 1)};
      Pack<E, N> first;
      Pack<E, N> second;
      Separate(pairs, first, second);
      SetPack(packed, head * p.query() + pack, first);
      SetPack(packed, head * p.query() + p.half + pack, second);
    };
    turn(query, head * p.query() + p.content, packed_query);
    turn(key_rotary, 0, packed_key);
  });
  ForEachPack(p.heads, p.query(), [&](int head, int pack) {
    Pack<E, N> of_value = {};
    if (pack < p.value) {
      of_value = PackAt<E, N>(key_value, head * p.key_value() + p.content + pack);
    }
    SetPack(packed_value, head * p.query() + pack, of_value);
  });
}

template <int N, typename E>
__global__ void UnpackToken(UnpackLatentHeadsArgs<E> args) {
  using T = Arithmetic<E>;
  const HeadPacks<N> p(args.heads);
  const int64_t token = blockIdx.x;
  const int64_t queries = static_cast<int64_t>(p.heads) * p.query() * N;
  const E* const packed_query = args.grad_qkv + token * 3 * queries;
  const E* const packed_key = packed_query + queries;
  const E* const packed_value = packed_key + queries;
  E* const query = args.grad_query + token * queries;
  E* const key_value = args.grad_key_value + token * p.heads * p.key_value() * N;
  E* const key_rotary = args.grad_down + (token + 1) * args.down_columns - args.heads.rotary;
  // The longest work has few threads, so it begins first.
  const int turned = p.turned * N;
  for (int i = static_cast<int>(threadIdx.x); i < 2 * turned; i += kThreads) {
    const E* const grad = packed_key + i / 2 + i % 2 * p.half * N;
    T sum = 0;
#pragma unroll 16
    for (int head = 0; head < p.heads; ++head) {
      sum += Widen(grad[head * p.query() * N]);
    }
    Narrow(sum, key_rotary[i]);
  }
  ForEachPack(p.heads, p.content, [&](int head, int pack) {
    const int from = head * p.query() + p.OfContent(pack);
    const Pack<E, N> of_query = PackAt<E, N>(packed_query, from);
    const Pack<E, N> of_key = PackAt<E, N>(packed_key, from);
    SetPack(query, head * p.query() + pack, of_query);
    SetPack(key_value, head * p.key_value() + pack, of_key);
  });
  ForEachPack(p.heads, p.turned, [&](int head, int pack) {
    Pack<E, N> pairs[2];
    Join(PackAt<E, N>(packed_query, head * p.query() + pack),
         PackAt<E, N>(packed_query, head * p.query() + p.half + pack), pairs);
    SetPack(query, head * p.query() + p.content + 2 * pack, pairs[0]);
    SetPack(query, head * p.query() + p.content + 2 * pack + 1, pairs[1]);
  });
  ForEachPack(p.heads, p.value, [&](int head, int pack) {
    SetPack(key_value, head * p.key_value() + p.content + pack,
            PackAt<E, N>(packed_value, head * p.query() + pack));
  });
}

}  // namespace

template <typename E>
int Launch(const PackLatentHeadsArgs<E>& args, Stream stream) {
  if (args.tokens == 0) {
    return cudaSuccess;
  }
  const LatentHeads& h = args.heads;
  WithPacks<E>({h.content / 2, h.rotary / 2, h.value, args.down_columns},
               {args.query, args.key_value, args.down, args.qkv}, [&]<int N>(Packed<N>) {
                 PackToken<N><<<static_cast<unsigned>(args.tokens), kThreads, 0, stream>>>(args);
               });
  return cudaGetLastError();
}
TANDEM_KERNEL(PackLatentHeadsArgs)

template <typename E>
int Launch(const UnpackLatentHeadsArgs<E>& args, Stream stream) {
  if (args.tokens == 0) {
    return cudaSuccess;
  }
  const LatentHeads& h = args.heads;
  WithPacks<E>({h.content / 2, h.rotary / 2, h.value, args.down_columns},
               {args.grad_qkv, args.grad_query, args.grad_key_value, args.grad_down}, [&]<int N>(Packed<N>) {
                 UnpackToken<N><<<static_cast<unsigned>(args.tokens), kThreads, 0, stream>>>(args);
               });
  return cudaGetLastError();
}
TANDEM_KERNEL(UnpackLatentHeadsArgs)

}  // namespace tandem::ops::cuda
