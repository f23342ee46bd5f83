// SPDX-License-Identifier: Apache-2.0
// Moves rows of tokens to where experts read them, and back: loops over the tokens' packs.
#include <cuda_runtime.h>

#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"
#include "ops/permute.h"
#include "ops/sends.h"

namespace tandem::ops::cuda {
namespace {

// Further passes of experts are launched whatever the router has chosen, and nearly all have no rows.
template <typename Args>
__device__ bool HasNoRows(const Args& args) {
  return args.rows_there != nullptr && *args.rows_there == 0;
}

// N elements of E are moved as they are.
template <typename E, int N>
__global__ void PermutePacks(PermuteArgs args) {
  if (HasNoRows(args)) {
    return;
  }
  const int64_t packs = args.columns / N;
  TANDEM_EACH(i, args.count * packs) {
    const int64_t token = i / packs;
    const int64_t pack = i % packs;
    Pack<E, N> value;
    bool is_read = false;  // many tokens have no row on this rank
    for (int64_t slot = token * args.slots_of_a_token; slot < (token + 1) * args.slots_of_a_token; ++slot) {
      const int64_t row = args.row_of[slot];
      if (row < args.first || row >= args.first + args.rows) {
        continue;
      }
      if (!is_read) {
        value = PackAt<E, N>(static_cast<const E*>(args.tokens), i);
      }
      is_read = true;
      SetPack(static_cast<E*>(args.out), (row - args.first) * packs + pack, value);
    }
  }
}

// If the output is added to, tokens without a row on this rank stay as they are.
template <int N, typename E>
__global__ void UnpermutePacks(UnpermuteArgs<E> args) {
  if (args.add && HasNoRows(args)) {
    return;
  }
  using T = Arithmetic<E>;
  const int64_t slots = args.slots_of_a_token;
  const int64_t packs = args.columns / N;
  TANDEM_EACH(i, args.count * packs) {
    const int64_t token = i / packs;
    const int64_t pack = i % packs;
    T sums[N] = {};
    bool empty = true;
    for (int64_t slot = token * slots; slot < (token + 1) * slots; ++slot) {
      const int64_t row = args.row_of[slot];
      if (row < args.first || row >= args.first + args.num_rows) {
        continue;
      }
      if (empty && args.add) {
        const Pack<E, N> there = PackAt<E, N>(args.tokens, i);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          sums[k] = Widen(there.e[k]);
        }
      }
      const Pack<E, N> term = PackAt<E, N>(args.rows, (row - args.first) * packs + pack);
      const bool starts = empty && !args.add;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        sums[k] = starts ? Widen(term.e[k]) : sums[k] + Widen(term.e[k]);
      }
      empty = false;
    }
    if (empty && args.add) {
      continue;
    }
    Pack<E, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      Narrow(sums[k], result.e[k]);
    }
    SetPack(args.tokens, i, result);
  }
}

template <typename T>
__global__ void EmptySlots(int64_t elements, int64_t* slots, T* row_probabilities) {
  TANDEM_EACH(i, elements) {
    slots[i] = -1;
    row_probabilities[i] = 0;
  }
}

// Calls visit(rank, slot) for each choice of the token, with its slot in the token's row on `rank`. A
// token's experts ascend, so those of one rank are adjacent.
template <typename Args, typename Visit>
__device__ void WithSlot(const Args& args, int64_t token, int64_t choice, const Visit& visit) {
  const int64_t* const experts = args.chosen + token * args.top_k;
  if (experts[choice] < 0) {
    return;
  }
  const int64_t rank = experts[choice] / args.experts_of_a_rank;
  if (rank >= args.ranks) {
    return;
  }
  int64_t slot = 0;
  for (int64_t j = 0; j < choice; ++j) {
    slot += experts[j] >= 0 && experts[j] / args.experts_of_a_rank == rank;
  }
  visit(rank, slot);
}

template <typename T>
__global__ void FillSlots(SendSlotsArgs<T> args) {
  TANDEM_EACH(i, args.tokens * args.top_k) {
    const int64_t token = i / args.top_k;
    WithSlot(args, token, i % args.top_k, [&](int64_t rank, int64_t slot) {
      const int64_t row = args.place[token * args.ranks + rank];
      if (row < 0 || row >= args.rows || slot >= args.width) {
        return;
      }
      args.slots[row * args.width + slot] = args.chosen[i] - rank * args.experts_of_a_rank;
      args.row_probabilities[row * args.width + slot] = args.probabilities[i];
    });
  }
}

template <typename T>
__global__ void ReadSlots(CollectSlotsArgs<T> args) {
  TANDEM_EACH(i, args.tokens * args.top_k) {
    const int64_t token = i / args.top_k;
    T value = 0;
    WithSlot(args, token, i % args.top_k, [&](int64_t rank, int64_t slot) {
      const int64_t row = args.place[token * args.ranks + rank];
      if (row >= 0 && slot < args.width) {
        value = args.row_probabilities[row * args.width + slot];
      }
    });
    args.probabilities[i] = args.add ? args.probabilities[i] + value : value;
  }
}

}  // namespace

template <>
int LaunchKernel(const PermuteArgs& args, Stream stream) {
  if (args.count == 0 || args.columns == 0 || args.rows == 0) {
    return cudaSuccess;
  }
  const auto move = [&]<typename E>(E) {
    WithPacks<E>({args.columns}, {args.tokens, args.out}, [&]<int N>(Packed<N>) {
      PermutePacks<E, N><<<Blocks(args.count * (args.columns / N)), kThreads, 0, stream>>>(args);
    });
    return cudaGetLastError();
  };
  switch (args.element_bytes) {
    case 2:
      return move(uint16_t{});
    case 4:
      return move(uint32_t{});
    case 8:
      return move(uint64_t{});
    default:
      return cudaErrorInvalidValue;
  }
}

template <typename E>
int Launch(const UnpermuteArgs<E>& args, Stream stream) {
  if (args.count == 0 || args.columns == 0) {
    return cudaSuccess;
  }
  WithPacks<E>({args.columns}, {args.rows, args.tokens}, [&]<int N>(Packed<N>) {
    UnpermutePacks<N><<<Blocks(args.count * (args.columns / N)), kThreads, 0, stream>>>(args);
  });
  return cudaGetLastError();
}
TANDEM_KERNEL(UnpermuteArgs)

template <typename T>
int Launch(const SendSlotsArgs<T>& args, Stream stream) {
  const int64_t elements = args.rows * args.width;
  if (args.rows > 0) {
    EmptySlots<<<Blocks(elements), kThreads, 0, stream>>>(elements, args.slots, args.row_probabilities);
  }
  if (args.tokens > 0) {
    FillSlots<<<Blocks(args.tokens * args.top_k), kThreads, 0, stream>>>(args);
  }
  return cudaGetLastError();
}
TANDEM_STATISTICS_KERNEL(SendSlotsArgs)

template <typename T>
int Launch(const CollectSlotsArgs<T>& args, Stream stream) {
  if (args.tokens > 0) {
    ReadSlots<<<Blocks(args.tokens * args.top_k), kThreads, 0, stream>>>(args);
  }
  return cudaGetLastError();
}
TANDEM_STATISTICS_KERNEL(CollectSlotsArgs)

}  // namespace tandem::ops::cuda
