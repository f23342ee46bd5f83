// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <cub/block/block_radix_sort.cuh>
#include <cub/device/device_radix_sort.cuh>

#include "ops/cuda/block.cuh"
#include "ops/cuda/gpu_attributes.h"
#include "ops/cuda/sorted_tokens.h"
#include "ops/cuda/tokens.cuh"

namespace tandem::ops::cuda {
namespace {

__device__ inline uint32_t KeyOf(int64_t id, int64_t vocabulary) {
  return static_cast<uint32_t>(id >= 0 && id < vocabulary ? id : vocabulary);
}

__global__ void FillKeys(Tokens tokens, int64_t vocabulary, uint32_t* keys, int32_t* places) {
  TANDEM_EACH(i, tokens.sequences * tokens.length) {
    keys[i] = KeyOf(IdOf(tokens, i), vocabulary);
    places[i] = static_cast<int32_t>(i);
  }
}

// If there are so few tokens, of so small a vocabulary, one block sorts them while the others clear the
// table: sorting few tokens is mostly waiting, and clearing a large table takes long. A key and a place fit
// in one word.
constexpr int kSortThreads = 1024;
constexpr int kTokensOfAThread = 16;
constexpr int kPlaceBits = 14;
constexpr int64_t kTokensOfABlockSort = int64_t{kSortThreads} * kTokensOfAThread;
static_assert(kTokensOfABlockSort == int64_t{1} << kPlaceBits);
using BlockSort = cub::BlockRadixSort<uint32_t, kSortThreads, kTokensOfAThread>;

// Does what IdOf does, for few tokens.
__device__ inline int64_t IdOfFew(const Tokens& tokens, unsigned row) {
  const auto length = static_cast<unsigned>(tokens.length);
  return tokens.ids[row / length * tokens.stride + row % length];
}

// Not inline, because it is long and should be compiled once.
__device__ __noinline__ void SortInBlock(Tokens tokens, int64_t vocabulary, int bits,
                                         BlockSort::TempStorage& storage, SortedTokens sorted) {
  const auto size = static_cast<unsigned>(sorted.size);
  uint32_t words[kTokensOfAThread];
#pragma unroll
  for (int k = 0; k < kTokensOfAThread; ++k) {
    const unsigned i = threadIdx.x * kTokensOfAThread + k;
    words[k] = i < size ? KeyOf(IdOfFew(tokens, i), vocabulary) << kPlaceBits | i : ~0U;  // those at the end
  }
  BlockSort(storage).SortBlockedToStriped(words, kPlaceBits, kPlaceBits + bits);
#pragma unroll
  for (int k = 0; k < kTokensOfAThread; ++k) {
    const unsigned i = threadIdx.x + k * kSortThreads;
    if (i < size) {
      sorted.keys[i] = words[k] >> kPlaceBits;
      sorted.places[i] = static_cast<int32_t>(words[k] & ((1U << kPlaceBits) - 1));
    }
  }
}

// A table whose rows consist of words.
template <typename Word>
struct TableWords {
  Word* begin;
  int64_t rows;
  int64_t columns;
};

// Clears rows [first, last) of the table, a warp a row, except rows of tokens, which are written later.
// marked: one bit for each of these rows.
template <typename Word>
__device__ void ClearRows(const Tokens& tokens, const TableWords<Word>& table, int64_t first, int64_t last,
                          uint32_t* marked) {
  const auto rows = static_cast<unsigned>(last - first);
  for (unsigned word = threadIdx.x; word < (rows + 31) / 32; word += kSortThreads) {
    marked[word] = 0;
  }
  __syncthreads();
  const auto size = static_cast<unsigned>(tokens.sequences * tokens.length);
#pragma unroll 8
  for (unsigned i = threadIdx.x; i < size; i += kSortThreads) {
    const int64_t id = IdOfFew(tokens, i);
    if (id >= first && id < last) {
      const auto row = static_cast<unsigned>(id - first);
      atomicOr(&marked[row / 32], 1U << row % 32);
    }
  }
  __syncthreads();
  for (unsigned row = threadIdx.x / 32; row < rows; row += kSortThreads / 32) {
    if ((marked[row / 32] >> row % 32 & 1) != 0) {
      continue;
    }
    Word* const to = table.begin + (first + row) * table.columns;
#pragma unroll 4
    for (int64_t i = threadIdx.x % 32; i < table.columns; i += 32) {
      to[i] = Word{};
    }
  }
}

// The first block sorts. The others, if there are any, clear the table except rows of tokens. Dynamic shared
// memory: as much as the sort needs, which also suffices for the bits of all rows.
template <typename Word>
__global__ void __launch_bounds__(kSortThreads)
    SortAndClear(Tokens tokens, int bits, SortedTokens sorted, TableWords<Word> table) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  if (blockIdx.x == 0) {
    SortInBlock(tokens, table.rows, bits, *reinterpret_cast<BlockSort::TempStorage*>(dynamic), sorted);
    return;
  }
  const int64_t share = (table.rows + gridDim.x - 2) / (gridDim.x - 1);
  const int64_t first = min(table.rows, (blockIdx.x - 1) * share);
  ClearRows(tokens, table, first, min(table.rows, first + share), reinterpret_cast<uint32_t*>(dynamic));
}

int BitsOf(int64_t vocabulary) {
  int bits = 1;
  while (bits < 32 && vocabulary >> bits > 0) {
    ++bits;
  }
  return bits;
}

// Launches the device functions above, for tokens that fit in a block.
template <typename Word>
int SortAndClearAtOnce(const Tokens& tokens, const TableWords<Word>& table, bool clear,
                       const SortedTokens& sorted, Stream stream) {
  constexpr int kBytes = sizeof(BlockSort::TempStorage);
  static_assert(kBytes >= (1 << (32 - kPlaceBits)) / 8);
  const int blocks = GpuAttribute(cudaDevAttrMultiProcessorCount);  // one block for each
  const int error =
      cudaFuncSetAttribute(SortAndClear<Word>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) {
    return error;
  }
  SortAndClear<<<clear ? static_cast<unsigned>(std::max(2, blocks)) : 1, kSortThreads, kBytes, stream>>>(
      tokens, BitsOf(table.rows), sorted, table);
  return cudaGetLastError();
}

// Sorts any number of tokens by several kernels, and clears the whole table. memory: follows `sorted`; has
// its pieces once more, and the memory of the sort.
int ClearThenSort(const Tokens& tokens, const TableBytes& table, bool clear, char* memory, int64_t piece,
                  int64_t bytes, const SortedTokens& sorted, Stream stream) {
  auto* const keys = reinterpret_cast<uint32_t*>(memory);
  auto* const places = reinterpret_cast<int32_t*>(memory + piece);
  size_t needed = 0;
  const auto sort = [&](void* sort_memory) {  // stable, so that the tokens of an id stay in order
    return cub::DeviceRadixSort::SortPairs(sort_memory, needed, keys, sorted.keys, places, sorted.places,
                                           static_cast<int>(sorted.size), 0, BitsOf(table.rows), stream);
  };
  int error = sort(nullptr);
  if (error == cudaSuccess && 2 * piece + static_cast<int64_t>(needed) > bytes) {
    error = cudaErrorMemoryAllocation;
  }
  if (error == cudaSuccess && clear) {
    error = cudaMemsetAsync(table.begin, 0, table.rows * table.row_bytes, stream);
  }
  if (error != cudaSuccess) {
    return error;
  }
  FillKeys<<<Blocks(sorted.size), kThreads, 0, stream>>>(tokens, table.rows, keys, places);
  return sort(memory + 2 * piece);
}

}  // namespace

int SortTokens(const Tokens& tokens, const TableBytes& table, bool clear, const Workspace& work,
               SortedTokens& sorted, Stream stream) {
  const int64_t size = tokens.sequences * tokens.length;
  if (size > INT32_MAX || table.rows >= UINT32_MAX) {
    return cudaErrorInvalidValue;
  }
  const int64_t piece = (size * 4 + 255) / 256 * 256;
  if (2 * piece > work.bytes) {
    return cudaErrorMemoryAllocation;
  }
  char* const memory = static_cast<char*>(work.begin);
  sorted = {reinterpret_cast<uint32_t*>(memory), reinterpret_cast<int32_t*>(memory + piece), size};
  if (size > kTokensOfABlockSort || table.rows >= int64_t{1} << (32 - kPlaceBits)) {
    return ClearThenSort(tokens, table, clear, memory + 2 * piece, piece, work.bytes - 2 * piece, sorted,
                         stream);
  }
  const auto at_once = [&]<typename Word>(Word* begin) {
    return SortAndClearAtOnce(
        tokens, TableWords<Word>{begin, table.rows, table.row_bytes / static_cast<int64_t>(sizeof(Word))},
        clear, sorted, stream);
  };
  const bool packed = reinterpret_cast<uintptr_t>(table.begin) % 16 == 0 && table.row_bytes % 16 == 0;
  return packed ? at_once(static_cast<uint4*>(table.begin)) : at_once(static_cast<uint16_t*>(table.begin));
}

}  // namespace tandem::ops::cuda
