// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/sorted_tokens.h"
#include "ops/cuda/tokens.cuh"
#include "ops/embedding.h"

namespace tandem::ops::cuda {
namespace {

constexpr int kTokensOfABlock = 4;  // a thread reads rows of so many tokens before it writes any

template <int N, typename E>
__global__ void EmbeddingRows(EmbeddingArgs<E> args) {
  const int64_t columns = args.columns;
  const int64_t size = args.tokens.sequences * args.tokens.length;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTokensOfABlock;
  const int count = static_cast<int>(min(size - first, int64_t{kTokensOfABlock}));
  const E* from[kTokensOfABlock] = {};  // null: NaN, because the id is outside of the table
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
        if (args.factor != 1) {
#pragma unroll
          for (int k = 0; k < N; ++k) {
            Narrow(Widen(rows[q].e[k]) * args.factor, rows[q].e[k]);
          }
        }
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

constexpr int kRowsAtOnce = 8;  // rows that a thread reads before it adds
// In a text, few ids have most tokens. An id with more tokens than this is shared among blocks and their
// threads.
constexpr int kFewTokens = 128;
constexpr int kLanePacks = 16;  // packs of a row in such a block; kLanes threads have each
constexpr int kLanes = kThreads / kLanePacks;

template <typename G>
struct SumArgs {
  SortedTokens sorted;
  int64_t vocabulary;
  int64_t columns;
  bool add;
  Arithmetic<G> factor;
  G* table;
};

// Adds up the rows of kRowsAtOnce places, and of the same id after them, except ids of many tokens and ids
// that begin before. Each warp finds out what it adds up: lane q knows place q.
template <int N, typename E, typename G>
__device__ void SumFew(const SumArgs<G>& args, const E* grad_output, int64_t first) {
  using T = Arithmetic<E>;
  constexpr uint32_t kNone = ~0U;
  const SortedTokens& sorted = args.sorted;
  const auto key_at = [&](int64_t at) { return at >= 0 && at < sorted.size ? sorted.keys[at] : kNone; };
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto packs = static_cast<int>(args.columns / N);
  for (int of_warp = static_cast<int>(threadIdx.x) - lane; of_warp < packs; of_warp += kThreads) {
    const int i = of_warp + lane;
    const bool inside = i < packs;
    bool open = false;  // whether the sums are those of `id`
    uint32_t id = kNone;
    T sums[N] = {};
    const auto write = [&] {
      Pack<G, N> result;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        Narrow(sums[k], result.e[k]);
      }
      if (inside) {
        SetPack(args.table + id * args.columns, i, result);
      }
    };
    int64_t begin = first;
    do {
      const int64_t at = begin + lane % kRowsAtOnce;
      const uint32_t key = key_at(at);
      const uint32_t before = key_at(at - 1);
      const bool many = key_at(at + kFewTokens) == key;
      const int32_t place = at < sorted.size ? sorted.places[at] : 0;
      // Ids that begin among the first places are added up; of the places that follow, only the last such
      // id.
      const bool starts = key != before && begin == first;
      const unsigned all_starts = __ballot_sync(kEveryLane, starts);
      const unsigned taken_starts = __ballot_sync(kEveryLane, starts && !many && key < args.vocabulary);
      const unsigned up_to = all_starts & ((2U << lane % kRowsAtOnce) - 1);
      const bool reads =
          begin == first ? up_to != 0 && (taken_starts >> (31 - __clz(up_to)) & 1) != 0 : key == id;
      const unsigned all_reads = __ballot_sync(kEveryLane, reads);
      Pack<E, N> rows[kRowsAtOnce];
#pragma unroll
      for (int q = 0; q < kRowsAtOnce; ++q) {
        const int64_t row = __shfl_sync(kEveryLane, place, q);
        if ((all_reads >> q & 1) != 0 && inside) {
          rows[q] = PackAt<E, N>(grad_output + row * args.columns, i);
        }
      }
#pragma unroll
      for (int q = 0; q < kRowsAtOnce; ++q) {
        const uint32_t key_of = __shfl_sync(kEveryLane, key, q);
        if (key_of != id) {
          if (open) {
            write();
          }
          id = key_of;
          open = (all_reads >> q & 1) != 0;
          Pack<G, N> there{};
          if (open && args.add && inside) {
            there = PackAt<G, N>(args.table + id * args.columns, i);
          }
#pragma unroll
          for (int k = 0; k < N; ++k) {
            sums[k] = Widen(there.e[k]);
          }
        }
        if ((all_reads >> q & 1) != 0) {
#pragma unroll
          for (int k = 0; k < N; ++k) {
            sums[k] += args.factor * Widen(rows[q].e[k]);
          }
        }
      }
      begin += kRowsAtOnce;
    } while (open && key_at(begin) == id);
    if (open) {
      write();
    }
  }
}

// Adds up kLanePacks packs, from first_pack on, of the row of an id with many tokens, if `place`, a multiple
// of kFewTokens, is the first such place of the id. Lane l adds up every kLanes-th token, from the l-th on.
template <int N, typename E, typename G>
__device__ void SumMany(const SumArgs<G>& args, const E* grad_output, int64_t place, int first_pack) {
  using T = Arithmetic<E>;
  __shared__ T shared[kLanes][kLanePacks * N];
  const SortedTokens& sorted = args.sorted;
  const uint32_t id = sorted.keys[place];
  const auto is_of_id = [&](int64_t at) { return at >= 0 && at < sorted.size && sorted.keys[at] == id; };
  // Skips ids of few tokens: an id of many would reach so far.
  if (id >= args.vocabulary || !is_of_id(place + 1) || is_of_id(place - kFewTokens)) {
    return;
  }
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t begin = place + 1 - __syncthreads_count(thread < kFewTokens && is_of_id(place - thread));
  if (!is_of_id(begin + kFewTokens)) {
    return;
  }
  int64_t end = begin + kFewTokens;  // the end of a whole step of tokens of the id
  for (int step = kThreads; step == kThreads; end += step) {
    step = __syncthreads_count(is_of_id(end + thread));
  }
  const int lane = thread / kLanePacks;
  const int pack = thread % kLanePacks;
  const int i = first_pack + pack;
  const bool inside = i < args.columns / N;
  T sums[N] = {};
  int32_t places[kRowsAtOnce];
  const auto find = [&](int64_t from) {
#pragma unroll
    for (int q = 0; q < kRowsAtOnce; ++q) {
      const int64_t at = from + q * kLanes;
      places[q] = inside && at < end ? sorted.places[at] : -1;
    }
  };
  find(begin + lane);
  for (int64_t at = begin + lane; at < end; at += kRowsAtOnce * kLanes) {
    Pack<E, N> rows[kRowsAtOnce];
    unsigned there = 0;
#pragma unroll
    for (int q = 0; q < kRowsAtOnce; ++q) {
      if (places[q] >= 0) {
        rows[q] = PackAt<E, N>(grad_output + places[q] * args.columns, i);
        there |= 1U << q;
      }
    }
    find(at + kRowsAtOnce * kLanes);  // the search overlaps with the reads
#pragma unroll
    for (int q = 0; q < kRowsAtOnce; ++q) {
      if ((there >> q & 1) != 0) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
          sums[k] += args.factor * Widen(rows[q].e[k]);
        }
      }
    }
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    shared[lane][pack * N + k] = sums[k];
  }
  __syncthreads();
  const int64_t column = int64_t{first_pack} * N + thread;
  if (thread >= kLanePacks * N || column >= args.columns) {
    return;
  }
  G& to = args.table[id * args.columns + column];
  T sum = args.add ? Widen(to) : T{0};
#pragma unroll
  for (int l = 0; l < kLanes; ++l) {
    sum += shared[l][thread];
  }
  Narrow(sum, to);
}

// The first of_many blocks have ids of many tokens, because these take longest.
template <int N, typename E, typename G>
__global__ void __launch_bounds__(kThreads, 3)
    EmbeddingSums(SumArgs<G> args, const E* grad_output, unsigned of_many, unsigned shares) {
  if (blockIdx.x < of_many) {
    SumMany<N>(args, grad_output, int64_t{blockIdx.x / shares} * kFewTokens,
               static_cast<int>(blockIdx.x % shares) * kLanePacks);
  } else {
    SumFew<N>(args, grad_output, int64_t{blockIdx.x - of_many} * kRowsAtOnce);
  }
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
int SumRows(const EmbeddingBackwardArgs<E>& args, G* table, Stream stream) {
  const int64_t size = args.tokens.sequences * args.tokens.length;
  const TableBytes bytes{table, args.vocabulary, args.columns * static_cast<int64_t>(sizeof(G))};
  if (size == 0 || args.columns == 0) {
    return args.add ? cudaSuccess : cudaMemsetAsync(table, 0, bytes.rows * bytes.row_bytes, stream);
  }
  SortedTokens sorted;
  int error = SortTokens(args.tokens, bytes, /*clear=*/!args.add, args.work, sorted, stream);
  if (error != cudaSuccess) {
    return error;
  }
  WithPacks<E>({args.columns}, {args.grad_output, table}, [&]<int N>(Packed<N>) {
    const int64_t shares = (args.columns / N + kLanePacks - 1) / kLanePacks;
    const int64_t of_many = (size + kFewTokens - 1) / kFewTokens * shares;
    const int64_t of_few = (size + kRowsAtOnce - 1) / kRowsAtOnce;
    if (of_many + of_few > INT32_MAX) {
      error = cudaErrorInvalidValue;
      return;
    }
    EmbeddingSums<N><<<static_cast<unsigned>(of_many + of_few), kThreads, 0, stream>>>(
        SumArgs<G>{sorted, args.vocabulary, args.columns, args.add, args.factor, table}, args.grad_output,
        static_cast<unsigned>(of_many), static_cast<unsigned>(shares));
  });
  const int launched = cudaGetLastError();
  return error != cudaSuccess ? error : launched;
}

}  // namespace

template <typename E>
int Launch(const EmbeddingBackwardArgs<E>& args, Stream stream) {
  return args.rounded != nullptr ? SumRows(args, args.rounded, stream)
                                 : SumRows(args, args.grad_weight, stream);
}
TANDEM_KERNEL(EmbeddingBackwardArgs)

}  // namespace tandem::ops::cuda
