// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "fsdp/bf16.h"
#include "fsdp/initialize.h"
#include "fsdp/norm_outcome.h"
#include "fsdp/optimizer.h"
#include "fsdp/parameter_norms.h"
#include "fsdp/run_inputs.h"

struct CUstream_st;

namespace tandem::fsdp::cuda {

// The loops of fsdp/ as kernels, on raw pointers to memory of the current GPU. Each call launches on `stream`
// and returns the runtime's error (cudaError_t). T is float or double; C, the type of contributions, is T, or
// Bf16 if T is float.
using Stream = CUstream_st*;

// A piece of a shard, cut into tiles. Tile t belongs to the last piece whose first tile is not after t.
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
};

// The source of the initial values of some elements of one parameter (initialize.h).
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

// Folds contributions into `gradients` as host_loops.h does, for the shard's parameters: gradients[i] =
// (((gradients[i] + c0[i]) + c1[i]) + …), or without gradients[i] if not `add`. Writes the norm terms of the
// result to `terms`, unless it is null; they are followed by space for the partial sums of min(num_tiles,
// kMaxTermBlocks) blocks. `stride` is the distance between contributions in elements.
template <typename T, typename C>
int LaunchFold(const TiledShard& shard, T* gradients, const C* contributions, int64_t stride,
               int num_contributions, bool add, UnitNormTerms* terms, Stream stream);

template <typename T>
struct OptimizerPointers {
  const T* gradients = nullptr;
  T* weights = nullptr;
  T* exp_avg = nullptr;
  T* exp_avg_sq = nullptr;
  Bf16* published = nullptr;  // the rounded weights; null: not written
  const NormOutcome* outcome = nullptr;
  const RunInputs* inputs = nullptr;
  ParameterNorms* update_norms = nullptr;  // [num_parameters]; null: not written
  ParameterNorms* tile_norms = nullptr;    // [num_tiles]
};

// `first_tiles`, [num_parameters + 1], says where each parameter's tiles begin.
template <typename T>
int LaunchOptimizerStep(const TiledShard& shard, const AdamWConfig& config,
                        const OptimizerPointers<T>& pointers, const int* first_tiles, int num_parameters,
                        Stream stream);

// Sets *own to the terms of the units, added in their order, the requests of `inputs`, and `uncounted`.
int LaunchSumTerms(const UnitNormTerms* const* units, int num_units, const RunInputs* inputs,
                   int64_t uncounted, NormTerms* own, Stream stream);

// Sets *outcome to AgreeOnNorm(terms, …).
int LaunchAgree(const NormTerms* terms, int ranks, const MeanConfig& config, NormOutcome* outcome,
                Stream stream);

}  // namespace tandem::fsdp::cuda
