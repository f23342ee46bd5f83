// Compiled without contraction (CMakeLists.txt): the bits are those of the CPU's loops.
#include <cuda_runtime.h>

#include "fsdp/cuda/kernels.h"

namespace tandem::fsdp::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 8;  // of a chunk, as in norms.cc
constexpr int kGroups = kThreads / kLanes;

template <typename T>
__device__ bool Finite(T value) {
  return value - value == 0;
}

// The chunks of a tile that this thread's group of lanes sums: k, k + kGroups, …
struct Chunks {
  __device__ Chunks(const Tile& tile, int64_t granule)
      : first(tile.begin / granule), last((tile.end - 1) / granule), tile(tile), granule(granule) {}
  __device__ int64_t begin(int64_t chunk) const {
    return chunk * granule < tile.begin ? tile.begin : chunk * granule;
  }
  __device__ int64_t end(int64_t chunk) const {
    return (chunk + 1) * granule > tile.end ? tile.end : (chunk + 1) * granule;
  }
  int64_t first;
  int64_t last;
  Tile tile;
  int64_t granule;
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

template <typename T>
__global__ void FoldEach(T* accumulator, const T* contributions, int64_t elements, int64_t stride,
                         int num_contributions, bool add) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    T sum = add ? accumulator[i] + contributions[i] : contributions[i];
    for (int r = 1; r < num_contributions; ++r) sum += contributions[r * stride + i];
    accumulator[i] = sum;
  }
}

template <typename T>
__global__ void TermsOfTile(ShardArrays<T> shard, const Tile* tiles, Partial* partials) {
  __shared__ DoubleDouble shared[kGroups];
  __shared__ int64_t shared_bad[kGroups];
  const Chunks chunks(tiles[blockIdx.x], shard.granule);
  const int lane = threadIdx.x % kLanes;
  const int group = threadIdx.x / kLanes;
  DoubleDouble squares;
  int64_t nonfinite = 0;
  // Every lane of a warp makes every round: they exchange values.
  for (int64_t base = chunks.first; base <= chunks.last; base += kGroups) {
    const int64_t chunk = base + group;
    const bool whole = chunk <= chunks.last;
    const int64_t begin = whole ? chunks.begin(chunk) : 0;
    const int64_t end = whole ? chunks.end(chunk) : 0;
    double sum = 0;
    int bad = 0;
    for (int64_t i = begin + lane; i < end; i += kLanes) {
      const T value = shard.gradient[i - shard.begin];
      bad += Finite(value) ? 0 : 1;
      sum += static_cast<double>(value) * static_cast<double>(value);
    }
    for (int step = kLanes / 2; step > 0; step /= 2) {
      bad += __shfl_down_sync(0xFFFFFFFF, bad, step, kLanes);
    }
    sum = AddLanes(sum);
    if (lane == 0 && whole) {
      if (bad > 0) {  // element by element, as the CPU does
        sum = 0;
        for (int64_t i = begin; i < end; ++i) {
          const T value = shard.gradient[i - shard.begin];
          if (Finite(value)) sum += static_cast<double>(value) * static_cast<double>(value);
        }
        nonfinite += bad;
      }
      squares.Add(sum);
    }
  }
  const DoubleDouble total = AddGroups(squares, shared);
  if (lane == 0) shared_bad[group] = nonfinite;
  __syncthreads();
  if (threadIdx.x == 0) {
    int64_t bad = 0;
    for (int g = 0; g < kGroups; ++g) bad += shared_bad[g];
    partials[blockIdx.x].sums[0] = total;
    partials[blockIdx.x].nonfinite = bad;
  }
}

__global__ void AddPartials(const Partial* partials, int num_tiles, NormTerms* terms) {
  __shared__ DoubleDouble shared[kThreads];
  __shared__ int64_t shared_bad[kThreads];
  DoubleDouble squares;
  int64_t bad = 0;
  for (int tile = threadIdx.x; tile < num_tiles; tile += kThreads) {
    squares.Add(partials[tile].sums[0]);
    bad += partials[tile].nonfinite;
  }
  shared_bad[threadIdx.x] = bad;
  squares = AddThreads(squares, shared);
  if (threadIdx.x == 0) {
    DoubleDouble total{terms->high, terms->low};
    total.Add(squares);
    bad = 0;
    for (int thread = 0; thread < kThreads; ++thread) bad += shared_bad[thread];
    terms->high = total.high;
    terms->low = total.low;
    terms->nonfinite += static_cast<double>(bad);
  }
}

template <typename T>
__global__ void StepOfTile(AdamWScalars<T> s, const NormOutcome* agreed, ShardArrays<T> shard,
                           const Tile* tiles, Partial* partials) {
  __shared__ DoubleDouble shared[kGroups];
  const Chunks chunks(tiles[blockIdx.x], shard.granule);
  const int lane = threadIdx.x % kLanes;
  const int group = threadIdx.x / kLanes;
  const bool finite = agreed == nullptr || agreed->finite;
  const T clip = agreed == nullptr ? T{1} : static_cast<T>(agreed->clip);
  DoubleDouble sums[3];
  for (int64_t base = chunks.first; base <= chunks.last; base += kGroups) {
    const int64_t chunk = base + group;
    const bool whole = chunk <= chunks.last;
    const int64_t begin = whole ? chunks.begin(chunk) : 0;
    const int64_t end = whole ? chunks.end(chunk) : 0;
    double squares[3] = {};
    for (int64_t flat = begin + lane; flat < end; flat += kLanes) {
      const int64_t i = flat - shard.begin;
      const T mean = shard.gradient[i] / s.divisor;
      T update = 0;
      if (finite) {
        const T gradient = clip * mean;
        const T exp_avg = s.beta1 * shard.exp_avg[i] + s.one_minus_beta1 * gradient;
        const T exp_avg_sq = s.beta2 * shard.exp_avg_sq[i] + s.one_minus_beta2 * gradient * gradient;
        const T direction = (exp_avg / s.correction1) / (sqrt(exp_avg_sq / s.correction2) + s.epsilon);
        const T old = shard.weight[i];
        const T weight = old - s.learning_rate * (direction + s.weight_decay * old);
        update = weight - old;
        shard.exp_avg[i] = exp_avg;
        shard.exp_avg_sq[i] = exp_avg_sq;
        shard.weight[i] = weight;
      }
      const double values[3] = {static_cast<double>(shard.weight[i]), static_cast<double>(mean),
                                static_cast<double>(update)};
      for (int k = 0; k < 3; ++k) squares[k] += values[k] * values[k];
    }
    for (int k = 0; k < 3; ++k) {
      const double sum = AddLanes(squares[k]);
      if (lane == 0 && whole) sums[k].Add(sum);
    }
  }
  for (int k = 0; k < 3; ++k) {
    const DoubleDouble total = AddGroups(sums[k], shared);
    if (threadIdx.x == 0) partials[blockIdx.x].sums[k] = total;
  }
}

// One block a parameter.
__global__ void NormsOfParameter(const Partial* partials, const int* first_tiles, ParameterNorms* norms) {
  __shared__ DoubleDouble shared[kThreads];
  DoubleDouble totals[3];
  for (int k = 0; k < 3; ++k) {
    DoubleDouble sum;
    for (int tile = first_tiles[blockIdx.x] + static_cast<int>(threadIdx.x);
         tile < first_tiles[blockIdx.x + 1]; tile += kThreads) {
      sum.Add(partials[tile].sums[k]);
    }
    totals[k] = AddThreads(sum, shared);
  }
  if (threadIdx.x == 0) norms[blockIdx.x] = {totals[0], totals[1], totals[2]};
}

__global__ void SetTerms(NormRequests asked, NormTerms* terms) {
  *terms = {0, 0, 0, static_cast<double>(asked.bits), asked.profile};
}

__global__ void Agree(const NormTerms* terms, int ranks, double num_microbatches, double max_norm,
                      NormOutcome* outcome) {
  *outcome = AgreeOnNorm(terms, ranks, num_microbatches, max_norm);
}

}  // namespace

template <typename T>
int Fold(T* accumulator, const T* contributions, int64_t elements, int64_t stride, int num_contributions,
         bool add, Stream stream) {
  const int64_t blocks = (elements + kThreads - 1) / kThreads;
  FoldEach<<<static_cast<unsigned>(blocks < 65536 ? blocks : 65536), kThreads, 0, stream>>>(
      accumulator, contributions, elements, stride, num_contributions, add);
  return cudaGetLastError();
}

template <typename T>
int AddTerms(const ShardArrays<T>& shard, const Tile* tiles, int num_tiles, Partial* partials,
             NormTerms* terms, Stream stream) {
  TermsOfTile<<<static_cast<unsigned>(num_tiles), kThreads, 0, stream>>>(shard, tiles, partials);
  AddPartials<<<1, kThreads, 0, stream>>>(partials, num_tiles, terms);
  return cudaGetLastError();
}

template <typename T>
int OptimizerStep(const AdamWScalars<T>& scalars, const NormOutcome* agreed, const ShardArrays<T>& shard,
                  const Tile* tiles, int num_tiles, const int* first_tiles, int num_parameters,
                  Partial* partials, ParameterNorms* norms, Stream stream) {
  StepOfTile<<<static_cast<unsigned>(num_tiles), kThreads, 0, stream>>>(scalars, agreed, shard, tiles,
                                                                        partials);
  NormsOfParameter<<<static_cast<unsigned>(num_parameters), kThreads, 0, stream>>>(partials, first_tiles,
                                                                                   norms);
  return cudaGetLastError();
}

int StartTerms(NormRequests asked, NormTerms* terms, Stream stream) {
  SetTerms<<<1, 1, 0, stream>>>(asked, terms);
  return cudaGetLastError();
}

int FinishNorm(const NormTerms* terms, int ranks, double num_microbatches, double max_norm,
               NormOutcome* outcome, Stream stream) {
  Agree<<<1, 1, 0, stream>>>(terms, ranks, num_microbatches, max_norm, outcome);
  return cudaGetLastError();
}

#define TANDEM_INSTANTIATE(T)                                                                                \
  template int Fold(T*, const T*, int64_t, int64_t, int, bool, Stream);                                      \
  template int AddTerms(const ShardArrays<T>&, const Tile*, int, Partial*, NormTerms*, Stream);              \
  template int OptimizerStep(const AdamWScalars<T>&, const NormOutcome*, const ShardArrays<T>&, const Tile*, \
                             int, const int*, int, Partial*, ParameterNorms*, Stream);

TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(double)

}  // namespace tandem::fsdp::cuda
