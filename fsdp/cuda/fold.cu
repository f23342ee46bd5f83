// SPDX-License-Identifier: Apache-2.0
// Folds contributions, and computes the terms of their norm in the same pass. Compiled without contraction
// (CMakeLists.txt), so the bits are those of the CPU's loops.
#include <cuda_runtime.h>

#include "fsdp/cuda/launch.h"
#include "fsdp/cuda/tiles.cuh"

namespace tandem::fsdp::cuda {
namespace {

template <typename T, typename C>
struct FoldArrays {
  T* gradients;
  const C* contributions;  // [num_contributions, stride]
  int64_t stride;
  int num_contributions;
};

// Folds the warp's packed round at element `at`. Returns the sum of the lane's squares if kTerms. kAdd: adds
// to the existing gradients.
template <bool kAdd, bool kTerms, typename T, typename C>
__device__ double FoldRound(const FoldArrays<T, C>& arrays, int64_t at, Exchange<T>& exchange) {
  constexpr int kSize = kPackSize<T>;
  RoundPacks<T> sums;
  RoundPacks<T, C> read;
  read.Read(arrays.contributions + at);
  if (kAdd) {
    sums.Read(arrays.gradients + at);
  }
#pragma unroll
  for (int p = 0; p < sums.kCount; ++p) {
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      T& sum = sums.packs[p].e[k];
      sum = kAdd ? sum + Widen(read.packs[p].e[k]) : Widen(read.packs[p].e[k]);
    }
  }
#pragma unroll 1
  for (int r = 1; r < arrays.num_contributions; ++r) {
    read.Read(arrays.contributions + r * arrays.stride + at);
#pragma unroll
    for (int p = 0; p < sums.kCount; ++p) {
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        sums.packs[p].e[k] += Widen(read.packs[p].e[k]);
      }
    }
  }
  sums.Write(arrays.gradients + at);
  double squares = 0;
  if constexpr (kTerms) {
    exchange.EachOfLane(sums, [&](T value) { AddSquare(squares, value); });
  }
  return squares;
}

// Folds the group's elements [begin, end) one by one. Returns the sum of the lane's squares.
template <bool kAdd, typename T, typename C>
__device__ double FoldElements(const FoldArrays<T, C>& arrays, int64_t begin, int64_t end) {
  double squares = 0;
#pragma unroll 1
  for (int64_t i = begin + Lane(); i < end; i += kLanes) {
    T sum = Widen(arrays.contributions[i]);
    if (kAdd) {
      sum = arrays.gradients[i] + sum;
    }
#pragma unroll 1
    for (int r = 1; r < arrays.num_contributions; ++r) {
      sum += Widen(arrays.contributions[r * arrays.stride + i]);
    }
    arrays.gradients[i] = sum;
    AddSquare(squares, sum);
  }
  return squares;
}

struct Recounted {
  double squares;  // of the finite elements
  double nonfinite;
};

// Counts element by element, as the CPU does if one is not finite.
template <typename T>
__device__ __noinline__ Recounted Recount(const T* gradients, int64_t begin, int64_t end) {
  Recounted terms{};
  for (int64_t i = begin; i < end; ++i) {
    const T value = gradients[i];
    if (IsFinite(value)) {
      terms.squares += static_cast<double>(value) * static_cast<double>(value);
    } else {
      terms.nonfinite += 1;
    }
  }
  return terms;
}

// The terms of the chunks that a group has folded; each of its threads has the same.
struct GroupTerms {
  DoubleDouble squares;
  double nonfinite = 0;

  // lane: the sum of the lane's squares of chunk [begin, end), which the whole warp has written.
  template <typename T>
  __device__ void Add(double lane, const T* gradients, int64_t begin, int64_t end) {
    double sum = AddLanes(lane);
    if (!IsFinite(sum)) {
      const Recounted recounted = Recount(gradients, begin, end);
      if (recounted.nonfinite > 0) {
        sum = recounted.squares;
      }
      nonfinite += recounted.nonfinite;
    }
    squares.Add(sum);
  }
};

// packed: the arrays begin at multiples of packs. With kTerms each block writes the terms of its tiles to
// partials[blockIdx.x].
template <bool kAdd, bool kTerms, typename T, typename C>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 4 ? 4 : 1)
    FoldTiles(TiledShard shard, FoldArrays<T, C> arrays, bool packed, UnitNormTerms* partials) {
  __shared__ Exchange<T> exchanges[kWarps];
  __shared__ GroupTerms shared[kGroups];
  constexpr int kChunksOfWarp = 32 / kLanes;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  GroupTerms terms;
  for (int tile = blockIdx.x; tile < shard.num_tiles; tile += gridDim.x) {
    const Chunks chunks(shard, tile);
    if (packed && chunks.tile_end - chunks.tile_begin == kTileChunks * kGranule) {
      const int64_t first = chunks.tile_begin - shard.begin;
#pragma unroll 2
      for (int round = 0; round < kTileChunks / kGroups; ++round) {
        const int64_t at = first + (round * kWarps + warp) * kRound;
        [[maybe_unused]] const double lane = FoldRound<kAdd, kTerms>(arrays, at, exchanges[warp]);
        if constexpr (kTerms) {
          const int64_t begin = at + Group() % kChunksOfWarp * kGranule;
          terms.Add(lane, arrays.gradients, begin, begin + kGranule);
        }
      }
      continue;
    }
    // Every lane of a warp takes part in every round, because the lanes exchange values.
#pragma unroll 1
    for (int64_t base = chunks.first; base <= chunks.last; base += kGroups) {
      const int64_t of_warp = base + warp * kChunksOfWarp;
      const int64_t chunk = base + Group();
      const bool whole = chunk <= chunks.last;
      const int64_t begin = whole ? chunks.begin(chunk) - shard.begin : 0;
      const int64_t end = whole ? chunks.end(chunk) - shard.begin : 0;
      [[maybe_unused]] const double lane =
          packed && chunks.Packed(of_warp)
              ? FoldRound<kAdd, kTerms>(arrays, of_warp * kGranule - shard.begin, exchanges[warp])
              : FoldElements<kAdd>(arrays, begin, end);
      if constexpr (kTerms) {
        __syncwarp();  // what the group's other lanes have written is visible
        terms.Add(lane, arrays.gradients, begin, end);
      }
    }
  }
  if constexpr (kTerms) {
    if (Lane() == 0) {
      shared[Group()] = terms;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      UnitNormTerms total;
      for (const GroupTerms& group : shared) {
        total.squares.Add(group.squares);
        total.nonfinite += group.nonfinite;
      }
      partials[blockIdx.x] = total;
    }
  }
}

// Called with one block.
__global__ void AddPartialTerms(const UnitNormTerms* partials, int num_partials, UnitNormTerms* terms) {
  __shared__ DoubleDouble shared[kThreads];
  __shared__ double shared_bad[kThreads];
  DoubleDouble squares;
  double bad = 0;
  for (int i = threadIdx.x; i < num_partials; i += kThreads) {
    squares.Add(partials[i].squares);
    bad += partials[i].nonfinite;
  }
  shared_bad[threadIdx.x] = bad;
  squares = AddThreads(squares, shared);
  if (threadIdx.x == 0) {
    bad = 0;
    for (int thread = 0; thread < kThreads; ++thread) {
      bad += shared_bad[thread];
    }
    terms->squares = squares;
    terms->nonfinite = bad;
  }
}

}  // namespace

template <typename T, typename C>
int LaunchFold(const TiledShard& shard, T* gradients, const C* contributions, int64_t stride,
               int num_contributions, bool add, UnitNormTerms* terms, Stream stream) {
  const bool wants = terms != nullptr;
  UnitNormTerms* const partials = wants ? terms + 1 : nullptr;
  const int blocks = shard.num_tiles < kMaxTermBlocks ? shard.num_tiles : kMaxTermBlocks;
  if (blocks > 0) {
    const auto kernel = wants ? (add ? FoldTiles<true, true, T, C> : FoldTiles<false, true, T, C>)
                              : (add ? FoldTiles<true, false, T, C> : FoldTiles<false, false, T, C>);
    kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
        shard, FoldArrays<T, C>{gradients, contributions, stride, num_contributions},
        ArePacks({gradients, contributions}), partials);
  }
  if (wants) {
    AddPartialTerms<<<1, kThreads, 0, stream>>>(partials, blocks, terms);
  }
  return cudaGetLastError();
}

#define TANDEM_INSTANTIATE(T, C) \
  template int LaunchFold(const TiledShard&, T*, const C*, int64_t, int, bool, UnitNormTerms*, Stream);

TANDEM_INSTANTIATE(float, float)
TANDEM_INSTANTIATE(float, Bf16)
TANDEM_INSTANTIATE(double, double)

}  // namespace tandem::fsdp::cuda
