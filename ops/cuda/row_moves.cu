// SPDX-License-Identifier: Apache-2.0
// Rows of tokens to where experts read them, and back: loops over the tokens' packs.
#include <cuda_runtime.h>

#include "ops/cuda/block.cuh"
#include "ops/cuda/sparse_kernels.h"

namespace tandem::ops::cuda {
namespace {

// N elements of E are moved as they are.
template <typename E, int N>
__global__ void PermutePacks(const E* tokens, int64_t count, int64_t slots, const int64_t* row_of,
                             int64_t first, int64_t rows, int64_t packs, E* out) {
  TANDEM_EACH(i, count * packs) {
    const int64_t token = i / packs;
    const int64_t pack = i % packs;
    Pack<E, N> value;
    bool is_read = false;  // many tokens have no row here
    for (int64_t slot = token * slots; slot < (token + 1) * slots; ++slot) {
      const int64_t row = row_of[slot];
      if (row < first || row >= first + rows) continue;
      if (!is_read) value = PackAt<E, N>(tokens, i);
      is_read = true;
      SetPack(out, (row - first) * packs + pack, value);
    }
  }
}

// Tokens without a row here are left alone where something is added to.
template <typename E, int N>
__global__ void UnpermutePacks(const E* rows, int64_t num_rows, const int64_t* row_of, int64_t first,
                               bool add, int64_t count, int64_t slots, int64_t packs, E* tokens) {
  using T = Arithmetic<E>;
  TANDEM_EACH(i, count * packs) {
    const int64_t token = i / packs;
    const int64_t pack = i % packs;
    T sums[N] = {};
    bool empty = true;
    for (int64_t slot = token * slots; slot < (token + 1) * slots; ++slot) {
      const int64_t row = row_of[slot];
      if (row < first || row >= first + num_rows) continue;
      if (empty && add) {
        const Pack<E, N> there = PackAt<E, N>(tokens, i);
#pragma unroll
        for (int k = 0; k < N; ++k) sums[k] = Widen(there.e[k]);
      }
      const Pack<E, N> term = PackAt<E, N>(rows, (row - first) * packs + pack);
      const bool starts = empty && !add;
#pragma unroll
      for (int k = 0; k < N; ++k) sums[k] = starts ? Widen(term.e[k]) : sums[k] + Widen(term.e[k]);
      empty = false;
    }
    if (empty && add) continue;
    Pack<E, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) Narrow(sums[k], result.e[k]);
    SetPack(tokens, i, result);
  }
}

template <typename T>
__global__ void EmptySlots(int64_t elements, int64_t* slots, T* row_probabilities) {
  TANDEM_EACH(i, elements) {
    slots[i] = -1;
    row_probabilities[i] = 0;
  }
}

// Calls visit(rank, slot) for the token's choice: in which slot of its row there it is. A token's experts
// ascend, so that those of one rank stand together.
template <typename Visit>
__device__ void WithSlot(const int64_t* experts, int64_t choice, int64_t experts_of_a_rank, int64_t ranks,
                         const Visit& visit) {
  if (experts[choice] < 0) return;
  const int64_t rank = experts[choice] / experts_of_a_rank;
  if (rank >= ranks) return;
  int64_t slot = 0;
  for (int64_t j = 0; j < choice; ++j) {
    slot += experts[j] >= 0 && experts[j] / experts_of_a_rank == rank;
  }
  visit(rank, slot);
}

template <typename T>
__global__ void FillSlots(const int64_t* chosen, const T* probabilities, const int64_t* place, int64_t tokens,
                          int64_t top_k, int64_t experts_of_a_rank, int64_t ranks, int64_t rows,
                          int64_t width, int64_t* slots, T* row_probabilities) {
  TANDEM_EACH(i, tokens * top_k) {
    const int64_t token = i / top_k;
    WithSlot(chosen + token * top_k, i % top_k, experts_of_a_rank, ranks, [&](int64_t rank, int64_t slot) {
      const int64_t row = place[token * ranks + rank];
      if (row < 0 || row >= rows || slot >= width) return;
      slots[row * width + slot] = chosen[i] - rank * experts_of_a_rank;
      row_probabilities[row * width + slot] = probabilities[i];
    });
  }
}

template <typename T>
__global__ void ReadSlots(const T* row_probabilities, const int64_t* chosen, const int64_t* place,
                          int64_t tokens, int64_t top_k, int64_t experts_of_a_rank, int64_t ranks,
                          int64_t width, bool add, T* probabilities) {
  TANDEM_EACH(i, tokens * top_k) {
    const int64_t token = i / top_k;
    T value = 0;
    WithSlot(chosen + token * top_k, i % top_k, experts_of_a_rank, ranks, [&](int64_t rank, int64_t slot) {
      const int64_t row = place[token * ranks + rank];
      if (row >= 0 && slot < width) value = row_probabilities[row * width + slot];
    });
    probabilities[i] = add ? probabilities[i] + value : value;
  }
}

template <typename E>
int PermuteElements(const void* tokens, int64_t count, int64_t slots, const int64_t* row_of, int64_t first,
                    int64_t rows, int64_t columns, void* out, Stream stream) {
  const E* const from = static_cast<const E*>(tokens);
  E* const to = static_cast<E*>(out);
  WithPacks<E>({columns}, {from, to}, [&]<int N>(Packed<N>) {
    const int64_t packs = columns / N;
    PermutePacks<E, N>
        <<<Blocks(count * packs), kThreads, 0, stream>>>(from, count, slots, row_of, first, rows, packs, to);
  });
  return cudaGetLastError();
}

}  // namespace

int Permute(const void* tokens, int64_t count, int64_t slots_of_a_token, const int64_t* row_of, int64_t first,
            int64_t rows, int64_t columns, int64_t element_bytes, void* out, Stream stream) {
  if (count == 0 || columns == 0 || rows == 0) return cudaSuccess;
  const auto move = [&]<typename E>(E) {
    return PermuteElements<E>(tokens, count, slots_of_a_token, row_of, first, rows, columns, out, stream);
  };
  switch (element_bytes) {
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
int Unpermute(const E* rows, int64_t num_rows, const int64_t* row_of, int64_t first, bool add, int64_t count,
              int64_t slots_of_a_token, int64_t columns, E* tokens, Stream stream) {
  if (count == 0 || columns == 0) return cudaSuccess;
  WithPacks<E>({columns}, {rows, tokens}, [&]<int N>(Packed<N>) {
    const int64_t packs = columns / N;
    UnpermutePacks<E, N><<<Blocks(count * packs), kThreads, 0, stream>>>(
        rows, num_rows, row_of, first, add, count, slots_of_a_token, packs, tokens);
  });
  return cudaGetLastError();
}

template <typename T>
int SendSlots(const int64_t* chosen, const T* probabilities, const int64_t* place, int64_t tokens,
              int64_t top_k, int64_t experts_of_a_rank, int64_t ranks, int64_t rows, int64_t width,
              int64_t* slots, T* row_probabilities, Stream stream) {
  if (rows > 0) {
    EmptySlots<<<Blocks(rows * width), kThreads, 0, stream>>>(rows * width, slots, row_probabilities);
  }
  if (tokens > 0) {
    FillSlots<<<Blocks(tokens * top_k), kThreads, 0, stream>>>(chosen, probabilities, place, tokens, top_k,
                                                               experts_of_a_rank, ranks, rows, width, slots,
                                                               row_probabilities);
  }
  return cudaGetLastError();
}

template <typename T>
int CollectSlots(const T* row_probabilities, const int64_t* chosen, const int64_t* place, int64_t tokens,
                 int64_t top_k, int64_t experts_of_a_rank, int64_t ranks, int64_t width, bool add,
                 T* probabilities, Stream stream) {
  if (tokens == 0) return cudaSuccess;
  ReadSlots<<<Blocks(tokens * top_k), kThreads, 0, stream>>>(
      row_probabilities, chosen, place, tokens, top_k, experts_of_a_rank, ranks, width, add, probabilities);
  return cudaGetLastError();
}

#define TANDEM_INSTANTIATE(E)                                                                             \
  template int Unpermute(const E*, int64_t, const int64_t*, int64_t, bool, int64_t, int64_t, int64_t, E*, \
                         Stream);
TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(double)
TANDEM_INSTANTIATE(Bf16)
#undef TANDEM_INSTANTIATE

#define TANDEM_INSTANTIATE(T)                                                                             \
  template int SendSlots(const int64_t*, const T*, const int64_t*, int64_t, int64_t, int64_t, int64_t,    \
                         int64_t, int64_t, int64_t*, T*, Stream);                                         \
  template int CollectSlots(const T*, const int64_t*, const int64_t*, int64_t, int64_t, int64_t, int64_t, \
                            int64_t, bool, T*, Stream);
TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(double)
#undef TANDEM_INSTANTIATE

}  // namespace tandem::ops::cuda
