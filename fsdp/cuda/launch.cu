// SPDX-License-Identifier: Apache-2.0
// Compiled without contraction (CMakeLists.txt): the bits are those of the CPU's loops.
#include <cuda_runtime.h>

#include "fsdp/buffer_bytes.h"
#include "fsdp/cuda/launch.h"

namespace tandem::fsdp::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 8;  // of a chunk, as in norms.cc
constexpr int kGroups = kThreads / kLanes;
constexpr int kAtOnce = 8;  // elements that a lane reads of each array before it writes any

template <typename T>
__device__ bool Finite(T value) {
  return value - value == 0;
}

// The chunks of one tile: a group of lanes sums k, k + kGroups, …
struct Chunks {
  __device__ Chunks(const TiledShard& shard, int tile) : granule(shard.granule) {
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
    const int64_t length = granule * kTileChunks;
    const int64_t place = piece.begin / length + (tile - piece.first_tile);
    tile_begin = place * length < piece.begin ? piece.begin : place * length;
    tile_end = (place + 1) * length > piece.end ? piece.end : (place + 1) * length;
    decays = piece.decays;
    first = tile_begin / granule;
    last = (tile_end - 1) / granule;
  }
  __device__ int64_t begin(int64_t chunk) const {
    return chunk * granule < tile_begin ? tile_begin : chunk * granule;
  }
  __device__ int64_t end(int64_t chunk) const {
    return (chunk + 1) * granule > tile_end ? tile_end : (chunk + 1) * granule;
  }
  int64_t granule;
  bool decays;
  int64_t tile_begin;
  int64_t tile_end;
  int64_t first;
  int64_t last;
};

// ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)), on lane 0.
__device__ double AddLanes(double lane) {
  lane += __shfl_down_sync(0xFFFFFFFF, lane, 4, kLanes);
  lane += __shfl_down_sync(0xFFFFFFFF, lane, 2, kLanes);
  lane += __shfl_down_sync(0xFFFFFFFF, lane, 1, kLanes);
  return lane;
}

// The group sums of a block, as one; on thread 0.
__device__ DoubleDouble AddGroups(const DoubleDouble& mine, DoubleDouble* shared) {
  __syncthreads();
  if (threadIdx.x % kLanes == 0) shared[threadIdx.x / kLanes] = mine;
  __syncthreads();
  DoubleDouble total;
  if (threadIdx.x == 0) {
    for (int group = 0; group < kGroups; ++group) total.Add(shared[group]);
  }
  return total;
}

// Over the threads of a block, as a tree; on thread 0.
__device__ DoubleDouble AddThreads(const DoubleDouble& mine, DoubleDouble* shared) {
  __syncthreads();
  shared[threadIdx.x] = mine;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x].Add(shared[threadIdx.x + half]);
    __syncthreads();
  }
  return shared[0];
}

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

// Each block leaves the terms of its tiles in partials[blockIdx.x].
template <typename T, typename C>
__global__ void __launch_bounds__(kThreads)
    FoldTiles(TiledShard shard, T* __restrict__ gradients, const C* __restrict__ contributions,
              int64_t stride, int num_contributions, bool add, UnitNormTerms* partials) {
  __shared__ DoubleDouble shared[kGroups];
  __shared__ double shared_bad[kGroups];
  const int lane = threadIdx.x % kLanes;
  const int group = threadIdx.x / kLanes;
  DoubleDouble squares;
  double nonfinite = 0;
  for (int tile = blockIdx.x; tile < shard.num_tiles; tile += gridDim.x) {
    const Chunks chunks(shard, tile);
    // Every lane of a warp makes every round: they exchange values.
    for (int64_t base = chunks.first; base <= chunks.last; base += kGroups) {
      const int64_t chunk = base + group;
      const bool whole = chunk <= chunks.last;
      const int64_t begin = (whole ? chunks.begin(chunk) : 0) - shard.begin;
      const int64_t end = (whole ? chunks.end(chunk) : 0) - shard.begin;
      double sum = 0;
      int bad = 0;
      for (int64_t first = begin + lane; first < end; first += kAtOnce * kLanes) {
        T values[kAtOnce];
        C read[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const int64_t i = first + j * kLanes;
          if (i < end) read[j] = contributions[i];
          if (add && i < end) values[j] = gradients[i];
        }
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) values[j] = add ? values[j] + Widen(read[j]) : Widen(read[j]);
        for (int r = 1; r < num_contributions; ++r) {
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j) {
            const int64_t i = first + j * kLanes;
            if (i < end) read[j] = contributions[r * stride + i];
          }
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j) values[j] += Widen(read[j]);
        }
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const int64_t i = first + j * kLanes;
          if (i >= end) continue;
          gradients[i] = values[j];
          bad += Finite(values[j]) ? 0 : 1;
          sum += static_cast<double>(values[j]) * static_cast<double>(values[j]);
        }
      }
      for (int step = kLanes / 2; step > 0; step /= 2) bad += __shfl_down_sync(0xFFFFFFFF, bad, step, kLanes);
      sum = AddLanes(sum);
      __syncwarp();  // what the other lanes of the group have written is there
      if (lane == 0 && whole) {
        if (bad > 0) {  // element by element, as the CPU does
          sum = 0;
          for (int64_t i = begin; i < end; ++i) {
            const T value = gradients[i];
            if (Finite(value)) sum += static_cast<double>(value) * static_cast<double>(value);
          }
          nonfinite += bad;
        }
        squares.Add(sum);
      }
    }
  }
  const DoubleDouble total = AddGroups(squares, shared);
  if (lane == 0) shared_bad[group] = nonfinite;
  __syncthreads();
  if (threadIdx.x == 0) {
    double bad = 0;
    for (int g = 0; g < kGroups; ++g) bad += shared_bad[g];
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

// One block a tile; leaves its norms in tile_norms[blockIdx.x].
template <typename T>
__global__ void __launch_bounds__(kThreads)
    StepTile(TiledShard shard, AdamWConfig config, OptimizerPointers<T> pointers) {
  __shared__ DoubleDouble shared[kGroups];
  const Chunks chunks(shard, blockIdx.x);
  const int lane = threadIdx.x % kLanes;
  const int group = threadIdx.x / kLanes;
  const RunInputs& inputs = *pointers.inputs;
  AdamWScalars<T> s(config, inputs.learning_rate, inputs.correction1, inputs.correction2,
                    pointers.outcome->clip);
  if (!chunks.decays) s.weight_decay = 0;
  const bool finite = pointers.outcome->finite;
  DoubleDouble sums[3];
  for (int64_t base = chunks.first; base <= chunks.last; base += kGroups) {
    const int64_t chunk = base + group;
    const bool whole = chunk <= chunks.last;
    const int64_t begin = (whole ? chunks.begin(chunk) : 0) - shard.begin;
    const int64_t end = (whole ? chunks.end(chunk) : 0) - shard.begin;
    double squares[3] = {};
    for (int64_t first = begin + lane; first < end; first += kAtOnce * kLanes) {
      T gradients[kAtOnce];
      T weights[kAtOnce];
      T exp_avgs[kAtOnce];
      T exp_avg_sqs[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int64_t i = first + j * kLanes;
        if (i >= end) continue;
        gradients[j] = pointers.gradients[i];
        weights[j] = pointers.weights[i];
        exp_avgs[j] = pointers.exp_avg[i];
        exp_avg_sqs[j] = pointers.exp_avg_sq[i];
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int64_t i = first + j * kLanes;
        if (i >= end) continue;
        const T mean = gradients[j] / s.divisor;
        const T old = weights[j];
        T weight = old;
        T update = 0;
        if (finite) {
          const T gradient = s.clip * mean;
          const T exp_avg = s.beta1 * exp_avgs[j] + s.one_minus_beta1 * gradient;
          const T exp_avg_sq = s.beta2 * exp_avg_sqs[j] + s.one_minus_beta2 * gradient * gradient;
          const T direction = (exp_avg / s.correction1) / (sqrt(exp_avg_sq / s.correction2) + s.epsilon);
          weight = old - s.learning_rate * (direction + s.weight_decay * old);
          update = weight - old;
          pointers.exp_avg[i] = exp_avg;
          pointers.exp_avg_sq[i] = exp_avg_sq;
          pointers.weights[i] = weight;
        }
        if (pointers.published != nullptr) pointers.published[i] = RoundToBf16(static_cast<float>(weight));
        const double values[3] = {static_cast<double>(weight), static_cast<double>(mean),
                                  static_cast<double>(update)};
        for (int k = 0; k < 3; ++k) squares[k] += values[k] * values[k];
      }
    }
    for (int k = 0; k < 3; ++k) {
      const double sum = AddLanes(squares[k]);
      if (lane == 0 && whole) sums[k].Add(sum);
    }
  }
  DoubleDouble totals[3];
  for (int k = 0; k < 3; ++k) totals[k] = AddGroups(sums[k], shared);
  if (threadIdx.x == 0) pointers.tile_norms[blockIdx.x] = {totals[0], totals[1], totals[2]};
}

// One block a parameter.
__global__ void AddTileNorms(const ParameterNorms* tiles, const int* first_tiles, ParameterNorms* norms) {
  __shared__ DoubleDouble shared[kThreads];
  ParameterNorms sum;
  for (int tile = first_tiles[blockIdx.x] + static_cast<int>(threadIdx.x); tile < first_tiles[blockIdx.x + 1];
       tile += kThreads) {
    sum.weight.Add(tiles[tile].weight);
    sum.gradient.Add(tiles[tile].gradient);
    sum.update.Add(tiles[tile].update);
  }
  const DoubleDouble weight = AddThreads(sum.weight, shared);
  const DoubleDouble gradient = AddThreads(sum.gradient, shared);
  const DoubleDouble update = AddThreads(sum.update, shared);
  if (threadIdx.x == 0) norms[blockIdx.x] = {weight, gradient, update};
}

// One block: the threads read, one adds, in the units' order.
__global__ void SumTerms(const UnitNormTerms* const* units, int num_units, const RunInputs* inputs,
                         NormTerms* own) {
  __shared__ UnitNormTerms shared[kThreads];
  DoubleDouble squares;
  double nonfinite = 0;
  for (int first = 0; first < num_units; first += kThreads) {
    const int count = num_units - first < kThreads ? num_units - first : kThreads;
    __syncthreads();
    if (threadIdx.x < count) shared[threadIdx.x] = *units[first + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 0; i < count; ++i) {
        squares.Add(shared[i].squares);
        nonfinite += shared[i].nonfinite;
      }
    }
  }
  if (threadIdx.x == 0) {
    *own = {squares.high, squares.low, nonfinite, static_cast<double>(inputs->requests.bits),
            inputs->requests.profile};
  }
}

__global__ void Agree(const NormTerms* terms, int ranks, double num_microbatches, double max_norm,
                      NormOutcome* outcome) {
  *outcome = AgreeOnNorm(terms, ranks, num_microbatches, max_norm);
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
    FoldTiles<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(shard, gradients, contributions, stride,
                                                                      num_contributions, add, terms + 1);
  }
  AddPartialTerms<<<1, kThreads, 0, stream>>>(terms + 1, blocks, terms);
  return cudaGetLastError();
}

template <typename T>
int LaunchOptimizerStep(const TiledShard& shard, const AdamWConfig& config,
                        const OptimizerPointers<T>& pointers, const int* first_tiles, int num_parameters,
                        Stream stream) {
  if (shard.num_tiles > 0) {
    StepTile<<<static_cast<unsigned>(shard.num_tiles), kThreads, 0, stream>>>(shard, config, pointers);
  }
  AddTileNorms<<<static_cast<unsigned>(num_parameters), kThreads, 0, stream>>>(
      pointers.tile_norms, first_tiles, pointers.update_norms);
  return cudaGetLastError();
}

int LaunchSumTerms(const UnitNormTerms* const* units, int num_units, const RunInputs* inputs, NormTerms* own,
                   Stream stream) {
  SumTerms<<<1, kThreads, 0, stream>>>(units, num_units, inputs, own);
  return cudaGetLastError();
}

int LaunchAgree(const NormTerms* terms, int ranks, double num_microbatches, double max_norm,
                NormOutcome* outcome, Stream stream) {
  Agree<<<1, 1, 0, stream>>>(terms, ranks, num_microbatches, max_norm, outcome);
  return cudaGetLastError();
}

#define TANDEM_INSTANTIATE_FOLD(T, C)                                                                   \
  template int LaunchFold(T*, const C*, int64_t, int64_t, int, bool, Stream);                           \
  template int LaunchFoldWithTerms(const TiledShard&, T*, const C*, int64_t, int, bool, UnitNormTerms*, \
                                   Stream);
#define TANDEM_INSTANTIATE_STEP(T)                                                                     \
  template int LaunchOptimizerStep(const TiledShard&, const AdamWConfig&, const OptimizerPointers<T>&, \
                                   const int*, int, Stream);

TANDEM_INSTANTIATE_FOLD(float, float)
TANDEM_INSTANTIATE_FOLD(float, Bf16)
TANDEM_INSTANTIATE_FOLD(double, double)
TANDEM_INSTANTIATE_STEP(float)
TANDEM_INSTANTIATE_STEP(double)

}  // namespace tandem::fsdp::cuda
