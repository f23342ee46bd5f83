// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>

#include "device/cuda/pack.cuh"
#include "fsdp/buffer_bytes.h"
#include "fsdp/cuda/launch.h"

// How a block works through a tile. The squares of a chunk (host_loops.h) are added in the order of the CPU's
// sums. A group of eight threads sums a chunk, element i on lane i % 8 as in host_loops.cc. A warp works on
// four consecutive chunks at a time; this is a round.
//
// A round of whole chunks of 64 elements moves in packs of 16 bytes: neighbouring threads move neighbouring
// packs, and the values to be squared then change threads through shared memory. All other rounds move
// element by element.
namespace tandem::fsdp::cuda {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kLanes = 8;
constexpr int kGroups = kThreads / kLanes;
constexpr int kRound = 32 / kLanes * kGranule;  // elements that a warp has in a packed round

__device__ inline int Lane() { return static_cast<int>(threadIdx.x) % kLanes; }
__device__ inline int Group() { return static_cast<int>(threadIdx.x) / kLanes; }

// The chunks of one tile. A group sums chunks k, k + kGroups, …
struct Chunks {
  __device__ Chunks(const TiledShard& shard, int tile) {
    int low = 0;
    int high = shard.num_pieces - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (shard.pieces[middle].first_tile <= tile) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const TiledPiece piece = shard.pieces[low];
    const int64_t length = kGranule * kTileChunks;
    const int64_t place = piece.begin / length + (tile - piece.first_tile);
    tile_begin = place * length < piece.begin ? piece.begin : place * length;
    tile_end = (place + 1) * length > piece.end ? piece.end : (place + 1) * length;
    decays = piece.decays;
    first = tile_begin / kGranule;
    last = (tile_end - 1) / kGranule;
  }
  __device__ int64_t begin(int64_t chunk) const {
    return chunk * kGranule < tile_begin ? tile_begin : chunk * kGranule;
  }
  __device__ int64_t end(int64_t chunk) const {
    return (chunk + 1) * kGranule > tile_end ? tile_end : (chunk + 1) * kGranule;
  }
  // Whether the warp's round that begins at `chunk` can move in packs.
  __device__ bool Packed(int64_t chunk) const {
    return chunk * kGranule >= tile_begin && chunk * kGranule + kRound <= tile_end;
  }
  bool decays;
  int64_t tile_begin;
  int64_t tile_end;
  int64_t first;
  int64_t last;
};

// A float's square is exact in double, so fused and separate rounding give the same sum.
__device__ inline void AddSquare(double& sum, float value) {
  const auto wide = static_cast<double>(value);
  sum = __fma_rn(wide, wide, sum);
}
__device__ inline void AddSquare(double& sum, double value) { sum += value * value; }

// Returns ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)), by lane, on each lane of the group.
__device__ inline double AddLanes(double lane) {
  lane += __shfl_xor_sync(0xFFFFFFFF, lane, 4, kLanes);
  lane += __shfl_xor_sync(0xFFFFFFFF, lane, 2, kLanes);
  lane += __shfl_xor_sync(0xFFFFFFFF, lane, 1, kLanes);
  return lane;
}

// Sums over the threads of a block as a tree. Thread 0 gets the result.
template <typename Sum>
__device__ inline Sum AddThreads(const Sum& mine, Sum* shared) {
  __syncthreads();
  shared[threadIdx.x] = mine;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      shared[threadIdx.x].Add(shared[threadIdx.x + half]);
    }
    __syncthreads();
  }
  return shared[0];
}

// A thread moves 16 bytes of the main type at once, and as many elements of a contribution.
using device::kPackSize;
using device::Pack;

// Returns whether packs can be read from the beginning of every array (null is ignored). They always can from
// whole granules on.
inline bool ArePacks(std::initializer_list<const void*> arrays) {
  bool packs = true;
  for (const void* array : arrays) {
    packs = packs && reinterpret_cast<uintptr_t>(array) % 16 == 0;
  }
  return packs;
}

// The elements of a warp in a packed round. Thread i of the warp has packs i, i + 32, …, of kPackSize<T>
// elements of E each.
template <typename T, typename E = T>
struct RoundPacks {
  static constexpr int kCount = kRound / kPackSize<T> / 32;
  Pack<E, kPackSize<T>> packs[kCount];

  __device__ void Read(const E* round) {
    const auto* const from = reinterpret_cast<const Pack<E, kPackSize<T>>*>(round) + threadIdx.x % 32;
#pragma unroll
    for (int p = 0; p < kCount; ++p) {
      packs[p] = from[p * 32];
    }
  }
  __device__ void Write(E* round) const {
    auto* const to = reinterpret_cast<Pack<E, kPackSize<T>>*>(round) + threadIdx.x % 32;
#pragma unroll
    for (int p = 0; p < kCount; ++p) {
      to[p * 32] = packs[p];
    }
  }
};

// The shared memory through which a warp's values change threads. A chunk is padded, so that the four groups
// read different sets of banks.
template <typename T>
struct Exchange {
  static constexpr int kChunk = kGranule + kLanes;
  T values[32 / kLanes * kChunk];

  // Calls body(value) with each element of the lane, in order. All threads of the warp must call it.
  template <typename Body>
  __device__ void EachOfLane(const RoundPacks<T>& round, const Body& body) {
    constexpr int kSize = kPackSize<T>;
    __syncwarp();  // waits for the readers of the previous values
#pragma unroll
    for (int p = 0; p < RoundPacks<T>::kCount; ++p) {
      const int element = (p * 32 + static_cast<int>(threadIdx.x) % 32) * kSize;
      *reinterpret_cast<Pack<T, kSize>*>(values + element / kGranule * kChunk + element % kGranule) =
          round.packs[p];
    }
    __syncwarp();
    const T* const mine = values + Group() % (32 / kLanes) * kChunk + Lane();
#pragma unroll
    for (int k = 0; k < kGranule / kLanes; ++k) {
      body(mine[k * kLanes]);
    }
  }
};

}  // namespace tandem::fsdp::cuda
