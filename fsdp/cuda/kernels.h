#pragma once

#include <cstdint>

#include "fsdp/norm_outcome.h"
#include "fsdp/optimizer.h"
#include "fsdp/shard_work.h"

struct CUstream_st;

namespace tandem::fsdp::cuda {

// The loops of a ShardWork as kernels, on raw pointers of the current GPU. Each call launches on `stream` and
// returns the runtime's error (cudaError_t). T: float, double; instances for ShardArrays<T> say which.
using Stream = CUstream_st*;

// Whole chunks of one parameter's piece, for one block.
struct Tile {
  int64_t begin = 0;  // flat coordinates
  int64_t end = 0;
  int parameter = 0;
  int pad = 0;
};

// What one block leaves of its tile.
struct Partial {
  DoubleDouble sums[3];  // weight, gradient, update; terms: the first alone
  int64_t nonfinite = 0;
};

// Chunks of a tile: 8 lanes a chunk, 32 chunks at a time.
constexpr int kTileChunks = 256;

template <typename T>
struct ShardArrays {
  T* weight = nullptr;
  T* gradient = nullptr;
  T* exp_avg = nullptr;
  T* exp_avg_sq = nullptr;
  int64_t begin = 0;  // flat coordinate of element 0
  int64_t granule = 64;
};

// accumulator[i] = (((accumulator[i] + c0[i]) + c1[i]) + …), as fold.h.
template <typename T>
int Fold(T* accumulator, const T* contributions, int64_t elements, int64_t stride, int num_contributions,
         bool add, Stream stream);

// Tiles of one unit, in the order of its buffer; partials: one per tile.
template <typename T>
int AddTerms(const ShardArrays<T>& shard, const Tile* tiles, int num_tiles, Partial* partials,
             NormTerms* terms, Stream stream);

// agreed may be null. first_tiles: [num_parameters + 1], where each parameter's tiles begin. norms:
// [num_parameters].
template <typename T>
int OptimizerStep(const AdamWScalars<T>& scalars, const NormOutcome* agreed, const ShardArrays<T>& shard,
                  const Tile* tiles, int num_tiles, const int* first_tiles, int num_parameters,
                  Partial* partials, ParameterNorms* norms, Stream stream);

// terms = {0, 0, 0, asked}.
int StartTerms(NormRequests asked, NormTerms* terms, Stream stream);

// *outcome = AgreeOnNorm(terms, …).
int FinishNorm(const NormTerms* terms, int ranks, double num_microbatches, double max_norm,
               NormOutcome* outcome, Stream stream);

}  // namespace tandem::fsdp::cuda
