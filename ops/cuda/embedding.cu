// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <cub/device/device_radix_sort.cuh>

#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/tokens.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kTokensOfABlock = 4;  // whose rows a thread reads before it writes any

template <int N, typename E>
__global__ void EmbeddingRows(EmbeddingArgs<E> args) {
  const int64_t columns = args.columns;
  const int64_t size = args.tokens.sequences * args.tokens.length;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTokensOfABlock;
  const int count = static_cast<int>(min(size - first, int64_t{kTokensOfABlock}));
  const E* from[kTokensOfABlock] = {};  // null: NaN, as the id is outside of the table
#pragma unroll
  for (int q = 0; q < kTokensOfABlock; ++q) {
    const int64_t id = q < count ? IdOf(args.tokens, first + q) : -1;
    if (id >= 0 && id < args.vocabulary) {
      from[q] = args.weight + id * columns;
    }
  }
  for (int64_t i = threadIdx.x; i < columns / N; i += kThreads) {
    Pack<E, N> rows[kTokensOfABlock];
#pragma unroll
    for (int q = 0; q < kTokensOfABlock; ++q) {
      if (from[q] != nullptr) {
        rows[q] = PackAt<E, N>(from[q], i);
      } else {
#pragma unroll
        for (int k = 0; k < N; ++k) {
          Narrow(NotANumber<Arithmetic<E>>(), rows[q].e[k]);
        }
      }
    }
#pragma unroll
    for (int q = 0; q < kTokensOfABlock; ++q) {
      if (q < count) {
        SetPack(args.output + (first + q) * columns, i, rows[q]);
      }
    }
  }
}

// Keys for the sort, ids outside the vocabulary behind all others, and where their tokens are.
__global__ void FillKeys(Tokens tokens, int64_t vocabulary, uint32_t* keys, int32_t* places) {
  TANDEM_EACH(i, tokens.sequences * tokens.length) {
    const int64_t id = IdOf(tokens, i);
    keys[i] = static_cast<uint32_t>(id >= 0 && id < vocabulary ? id : vocabulary);
    places[i] = static_cast<int32_t>(i);
  }
}

constexpr int kSumThreads = 64;  // few: an id of many tokens is then shared among many blocks
constexpr int kRowsAtOnce = 8;   // that a thread reads before it adds

// A block has kSumThreads packs of the row of one id, the one whose first token is at its place among the
// sorted keys; blocks of other places have nothing to do. An id a block, since few ids have most tokens of a
// text.
template <int N, typename E, typename G>
__global__ void EmbeddingSums(EmbeddingBackwardArgs<E> args, const uint32_t* keys, const int32_t* places,
                              int64_t size, G* grad_weight) {
  using T = Arithmetic<E>;
  const int64_t first = blockIdx.x;
  const uint32_t id = keys[first];
  const int64_t columns = args.columns;
  if (id >= args.vocabulary || (first > 0 && keys[first - 1] == id)) {
    return;
  }
  const int64_t i = static_cast<int64_t>(blockIdx.y) * kSumThreads + threadIdx.x;
  if (i >= columns / N) {
    return;
  }
  G* const row = grad_weight + id * columns;
  T sums[N] = {};
  Pack<G, N> result{};
  if (args.add) {
    result = PackAt<G, N>(row, i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      sums[k] = Widen(result.e[k]);
    }
  }
  bool more = true;
  for (int64_t begin = first; more; begin += kRowsAtOnce) {
    Pack<E, N> rows[kRowsAtOnce];
    int count = 0;
#pragma unroll
    for (int q = 0; q < kRowsAtOnce; ++q) {
      more = more && begin + q < size && keys[begin + q] == id;
      if (more) {
        rows[q] = PackAt<E, N>(args.grad_output + places[begin + q] * columns, i);
        count = q + 1;
      }
    }
#pragma unroll
    for (int q = 0; q < kRowsAtOnce; ++q) {
      if (q >= count) {
        continue;
      }
#pragma unroll
      for (int k = 0; k < N; ++k) {
        sums[k] += Widen(rows[q].e[k]);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    Narrow(sums[k], result.e[k]);
  }
  SetPack(row, i, result);
}

}  // namespace

template <typename E>
int Launch(const EmbeddingArgs<E>& args, Stream stream) {
  const int64_t size = args.tokens.sequences * args.tokens.length;
  if (size == 0 || args.columns == 0) {
    return cudaSuccess;
  }
  WithPacks<E>({args.columns}, {args.weight, args.output}, [&]<int N>(Packed<N>) {
    const int64_t blocks = (size + kTokensOfABlock - 1) / kTokensOfABlock;
    EmbeddingRows<N><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(args);
  });
  return cudaGetLastError();
}
TANDEM_KERNEL(EmbeddingArgs)

namespace {

// G: E, or Arithmetic<E>.
template <typename E, typename G>
int SumRows(const EmbeddingBackwardArgs<E>& args, G* grad_weight, Stream stream) {
  const int64_t size = args.tokens.sequences * args.tokens.length;
  const int64_t vocabulary = args.vocabulary;
  const int64_t columns = args.columns;
  if (!args.add) {
    const int error = cudaMemsetAsync(grad_weight, 0, vocabulary * columns * sizeof(G), stream);
    if (error != cudaSuccess) {
      return error;
    }
  }
  if (size == 0 || columns == 0) {
    return cudaSuccess;
  }
  if (size > INT32_MAX || vocabulary >= UINT32_MAX) {
    return cudaErrorInvalidValue;
  }
  const int64_t piece = (size * 4 + 255) / 256 * 256;
  char* const memory = static_cast<char*>(args.work.begin);
  auto* const keys = reinterpret_cast<uint32_t*>(memory);
  auto* const places = reinterpret_cast<int32_t*>(memory + piece);
  auto* const sorted_keys = reinterpret_cast<uint32_t*>(memory + 2 * piece);
  auto* const sorted_places = reinterpret_cast<int32_t*>(memory + 3 * piece);
  int bits = 1;
  while (bits < 32 && vocabulary >> bits > 0) {
    ++bits;
  }
  size_t needed = 0;
  const auto sort = [&](void* sort_memory) {  // stable: the tokens of an id stay in order
    return cub::DeviceRadixSort::SortPairs(sort_memory, needed, keys, sorted_keys, places, sorted_places,
                                           static_cast<int>(size), 0, bits, stream);
  };
  int error = sort(nullptr);
  if (error != cudaSuccess) {
    return error;
  }
  if (4 * piece + static_cast<int64_t>(needed) > args.work.bytes) {
    return cudaErrorMemoryAllocation;
  }
  FillKeys<<<Blocks(size), kThreads, 0, stream>>>(args.tokens, vocabulary, keys, places);
  error = sort(memory + 4 * piece);
  if (error != cudaSuccess) {
    return error;
  }
  WithPacks<E>({columns}, {args.grad_output, grad_weight}, [&]<int N>(Packed<N>) {
    const dim3 blocks(static_cast<unsigned>(size),
                      static_cast<unsigned>((columns / N + kSumThreads - 1) / kSumThreads));
    EmbeddingSums<N><<<blocks, kSumThreads, 0, stream>>>(args, sorted_keys, sorted_places, size, grad_weight);
  });
  return cudaGetLastError();
}

}  // namespace

template <typename E>
int Launch(const EmbeddingBackwardArgs<E>& args, Stream stream) {
  return args.rounded != nullptr ? SumRows(args, args.rounded, stream)
                                 : SumRows(args, args.grad_weight, stream);
}
TANDEM_KERNEL(EmbeddingBackwardArgs)

}  // namespace tandem::ops::cuda
