// SPDX-License-Identifier: Apache-2.0
// The fold of contributions and the terms of its norm. Compiled without contraction (CMakeLists.txt): the
// bits are those of the CPU's loops.
#include <cuda_runtime.h>

#include "fsdp/cuda/launch.h"
#include "fsdp/cuda/tiles.cuh"

namespace tandem::fsdp::cuda {
namespace {

template <typename T, typename C>
__global__ void FoldEach(T* __restrict__ accumulator, const C* __restrict__ contributions, int64_t elements,
                         int64_t stride, int num_contributions, bool add) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    T sum = add ? accumulator[i] + Widen(contributions[i]) : Widen(contributions[i]);
    for (int r = 1; r < num_contributions; ++r) sum += Widen(contributions[r * stride + i]);
    accumulator[i] = sum;
  }
}

template <typename T, typename C>
struct FoldArrays {
  T* gradients;
  const C* contributions;  // [num_contributions, stride]
  int64_t stride;
  int num_contributions;
  bool add;
};

// Folds the warp's packed round at element `at`, of which `read` is the first contribution; returns the sum
// of the lane's squares.
template <typename T, typename C>
__device__ double FoldRound(const FoldArrays<T, C>& arrays, int64_t at, RoundPacks<T, C> read,
                            Exchange<T>& exchange) {
  constexpr int kSize = kPackSize<T>;
  RoundPacks<T> sums;
  if (arrays.add) sums.Read(arrays.gradients + at);
#pragma unroll
  for (int p = 0; p < sums.kCount; ++p) {
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      T& sum = sums.packs[p].e[k];
      sum = arrays.add ? sum + Widen(read.packs[p].e[k]) : Widen(read.packs[p].e[k]);
    }
  }
  for (int r = 1; r < arrays.num_contributions; ++r) {
    read.Read(arrays.contributions + r * arrays.stride + at);
#pragma unroll
    for (int p = 0; p < sums.kCount; ++p) {
#pragma unroll
      for (int k = 0; k < kSize; ++k) sums.packs[p].e[k] += Widen(read.packs[p].e[k]);
    }
  }
  sums.Write(arrays.gradients + at);
  double squares = 0;
  exchange.EachOfLane(sums, [&](T value) { AddSquare(squares, value); });
  return squares;
}

// Folds the group's elements [begin, end) one by one; returns the sum of the lane's squares.
template <typename T, typename C>
__device__ double FoldElements(const FoldArrays<T, C>& arrays, int64_t begin, int64_t end) {
  double squares = 0;
  for (int64_t i = begin + Lane(); i < end; i += kLanes) {
    T sum = Widen(arrays.contributions[i]);
    if (arrays.add) sum = arrays.gradients[i] + sum;
    for (int r = 1; r < arrays.num_contributions; ++r)
      sum += Widen(arrays.contributions[r * arrays.stride + i]);
    arrays.gradients[i] = sum;
    AddSquare(squares, sum);
  }
  return squares;
}

// Each block leaves the terms of its tiles in partials[blockIdx.x].
template <typename T, typename C>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 4 ? 4 : 1)
    FoldTiles(TiledShard shard, FoldArrays<T, C> arrays, bool packed, UnitNormTerms* partials) {
  __shared__ Exchange<T> exchanges[kWarps];
  __shared__ DoubleDouble shared[kGroups];
  __shared__ double shared_bad[kGroups];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  DoubleDouble squares;
  double nonfinite = 0;
  for (int tile = blockIdx.x; tile < shard.num_tiles; tile += gridDim.x) {
    const Chunks chunks(shard, tile);
    const auto packed_at = [&](int64_t of_warp) { return packed && chunks.Packed(of_warp); };
    RoundPacks<T, C> next;  // the first contribution of the next round, where that is packed
    bool read_ahead = false;
    // Every lane of a warp makes every round: they exchange values.
    for (int64_t base = chunks.first; base <= chunks.last; base += kGroups) {
      const int64_t of_warp = base + warp * (32 / kLanes);
      const int64_t chunk = base + Group();
      const bool whole = chunk <= chunks.last;
      const int64_t begin = (whole ? chunks.begin(chunk) : 0) - shard.begin;
      const int64_t end = (whole ? chunks.end(chunk) : 0) - shard.begin;
      double sum = 0;
      if (packed_at(of_warp)) {
        const int64_t at = of_warp * kPackedGranule - shard.begin;
        if (!read_ahead) next.Read(arrays.contributions + at);
        const RoundPacks<T, C> read = next;
        read_ahead = packed_at(of_warp + kGroups);
        if (read_ahead) next.Read(arrays.contributions + at + kGroups * kPackedGranule);
        sum = FoldRound(arrays, at, read, exchanges[warp]);
      } else {
        sum = FoldElements(arrays, begin, end);
      }
      sum = AddLanes(sum);
      __syncwarp();  // what the other lanes of the group have written is there
      if (Lane() == 0 && whole) {
        if (!Finite(sum)) {  // element by element, as the CPU does where one is not finite
          double finite = 0;
          int bad = 0;
          for (int64_t i = begin; i < end; ++i) {
            const T value = arrays.gradients[i];
            if (Finite(value)) {
              finite += static_cast<double>(value) * static_cast<double>(value);
            } else {
              ++bad;
            }
          }
          if (bad > 0) sum = finite;
          nonfinite += bad;
        }
        squares.Add(sum);
      }
    }
  }
  if (Lane() == 0) {
    shared[Group()] = squares;
    shared_bad[Group()] = nonfinite;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    DoubleDouble total;
    double bad = 0;
    for (int group = 0; group < kGroups; ++group) {
      total.Add(shared[group]);
      bad += shared_bad[group];
    }
    partials[blockIdx.x].squares = total;
    partials[blockIdx.x].nonfinite = bad;
  }
}

// One block.
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
    for (int thread = 0; thread < kThreads; ++thread) bad += shared_bad[thread];
    terms->squares = squares;
    terms->nonfinite = bad;
  }
}

}  // namespace

template <typename T, typename C>
int LaunchFold(T* accumulator, const C* contributions, int64_t elements, int64_t stride,
               int num_contributions, bool add, Stream stream) {
  const int64_t blocks = (elements + kThreads - 1) / kThreads;
  FoldEach<<<static_cast<unsigned>(blocks < 65536 ? blocks : 65536), kThreads, 0, stream>>>(
      accumulator, contributions, elements, stride, num_contributions, add);
  return cudaGetLastError();
}

template <typename T, typename C>
int LaunchFoldWithTerms(const TiledShard& shard, T* gradients, const C* contributions, int64_t stride,
                        int num_contributions, bool add, UnitNormTerms* terms, Stream stream) {
  const int blocks = shard.num_tiles < kMaxTermBlocks ? shard.num_tiles : kMaxTermBlocks;
  if (blocks > 0) {
    FoldTiles<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
        shard, FoldArrays<T, C>{gradients, contributions, stride, num_contributions, add},
        ArePacks({gradients, contributions}), terms + 1);
  }
  AddPartialTerms<<<1, kThreads, 0, stream>>>(terms + 1, blocks, terms);
  return cudaGetLastError();
}

#define TANDEM_INSTANTIATE(T, C)                                                                        \
  template int LaunchFold(T*, const C*, int64_t, int64_t, int, bool, Stream);                           \
  template int LaunchFoldWithTerms(const TiledShard&, T*, const C*, int64_t, int, bool, UnitNormTerms*, \
                                   Stream);

TANDEM_INSTANTIATE(float, float)
TANDEM_INSTANTIATE(float, Bf16)
TANDEM_INSTANTIATE(double, double)

}  // namespace tandem::fsdp::cuda
