// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "fsdp/bf16.h"
#include "fsdp/initial_value.h"
#include "fsdp/norm_outcome.h"
#include "fsdp/optimizer.h"
#include "fsdp/parameter_norms.h"
#include "fsdp/run_inputs.h"

struct CUstream_st;

namespace tandem::fsdp::cuda {

// The loops of fsdp/ as kernels, on raw pointers of the current GPU. Each call launches on `stream` and
// returns the runtime's error (cudaError_t). T: float, double; C: T, or Bf16 with float.
using Stream = CUstream_st*;

// A piece of a shard, as its blocks find it: tile t is of the last piece whose first tile is not behind it.
struct TiledPiece {
  int64_t begin = 0;  // flat coordinates
  int64_t end = 0;
  int first_tile = 0;
  int parameter = 0;
  bool decays = true;  // weight decay acts on the parameter
};

// A rank's shard of a unit, cut into tiles of whole chunks. One block works on one tile at a time.
struct TiledShard {
  const TiledPiece* pieces = nullptr;
  int num_pieces = 0;
  int num_tiles = 0;
  int64_t begin = 0;  // flat coordinate of element 0
  int64_t granule = 64;
};

// Where the initial values of some elements of one parameter come from (initialize.h).
struct InitialValues {
  uint64_t seed = 0;
  uint64_t stream = 0;
  int64_t first = 0;  // index within the parameter
  int64_t elements = 0;
  Distribution distribution = Distribution::kNormal;
  double deviation = 0;
};

template <typename T>
int LaunchInitialize(const InitialValues& initial, T* values, Stream stream);

// to[i] = from[i], rounded.
int LaunchRound(const float* from, int64_t elements, Bf16* to, Stream stream);

// gradients[i] = (((gradients[i] + c0[i]) + c1[i]) + …) of the shard's parameters, without gradients[i] where
// not add, as fold.h; and the terms of what is then there. terms: the terms, and behind them room for the
// partial sums of min(num_tiles, kMaxTermBlocks) blocks; null: not wanted. stride: between contributions.
template <typename T, typename C>
int LaunchFold(const TiledShard& shard, T* gradients, const C* contributions, int64_t stride,
               int num_contributions, bool add, UnitNormTerms* terms, Stream stream);

template <typename T>
struct OptimizerPointers {
  const T* gradients = nullptr;
  T* weights = nullptr;
  T* exp_avg = nullptr;
  T* exp_avg_sq = nullptr;
  Bf16* published = nullptr;  // the weights, rounded; null: not wanted
  const NormOutcome* outcome = nullptr;
  const RunInputs* inputs = nullptr;
  ParameterNorms* update_norms = nullptr;  // [num_parameters]; null: not wanted
  ParameterNorms* tile_norms = nullptr;    // [num_tiles]
};

// first_tiles: [num_parameters + 1], where each parameter's tiles begin.
template <typename T>
int LaunchOptimizerStep(const TiledShard& shard, const AdamWConfig& config,
                        const OptimizerPointers<T>& pointers, const int* first_tiles, int num_parameters,
                        Stream stream);

// *own = the terms of the units, added in their order, what `inputs` ask for, and `uncounted`.
int LaunchSumTerms(const UnitNormTerms* const* units, int num_units, const RunInputs* inputs,
                   int64_t uncounted, NormTerms* own, Stream stream);

// *outcome = AgreeOnNorm(terms, …).
int LaunchAgree(const NormTerms* terms, int ranks, const MeanConfig& config, NormOutcome* outcome,
                Stream stream);

}  // namespace tandem::fsdp::cuda
