// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fsdp/bf16.h"
#include "fsdp/initialize.h"
#include "fsdp/layout.h"
#include "fsdp/norm_outcome.h"
#include "fsdp/optimizer.h"
#include "fsdp/parameter_norms.h"
#include "fsdp/run_inputs.h"

namespace tandem::fsdp {

// The position of one rank's shard of a unit, its element types, and the pieces of parameters in it.
struct ShardGeometry {
  bool fp64 = false;          // weights, moments and accumulator are fp64; otherwise fp32
  bool reduces_bf16 = false;  // contributions are bf16; otherwise they have the accumulator's type
  int64_t begin = 0;          // flat coordinate of the first element
  int64_t shard_elements = 0;
  int num_ranks = 1;
  int num_parameters = 0;
  std::vector<Piece> pieces;
  bool operator==(const ShardGeometry&) const = default;
};

// The arrays of a shard that OptimizerStep works on. These and all other pointers in this file are in the
// device's memory.
struct OptimizerArrays {
  const void* gradients = nullptr;
  void* weights = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  void* published = nullptr;  // the fp32 weights in bfloat16; null if they are not published
  const NormOutcome* outcome = nullptr;
  const RunInputs* inputs = nullptr;
  ParameterNorms* update_norms = nullptr;  // [num_parameters]; null: not written
  void* scratch = nullptr;                 // of BufferBytesOf(...).optimizer_scratch bytes
};

// The loops over one unit's shard. The order of additions is the same on each kind of device and for any
// number of ranks: contributions are added in rank order; squares within chunks, which end at multiples of
// kGranule, in eight lanes (host_loops.h); and the sums of chunks as a DoubleDouble. The loops run on the
// current stream. Objects have no state between calls, so several streams may use one.
class UnitKernels {
 public:
  virtual ~UnitKernels() = default;

  // `staging` has the contributions of all ranks, [num_ranks * shard_elements]. Writes the terms of the
  // accumulator to `norm_terms` in the same pass, unless it is null.
  virtual void Fold(const void* staging, void* gradients, bool add, UnitNormTerms* norm_terms) const = 0;

  virtual void OptimizerStep(const OptimizerArrays& arrays, const AdamWConfig& config) const = 0;
};

// The computations of GradientNorm before and after its exchange.
class NormKernels {
 public:
  virtual ~NormKernels() = default;

  // Sets *own to the units' terms, added in unit order, the requests of `inputs`, and `uncounted`.
  virtual void Sum(const RunInputs* inputs, int64_t uncounted, NormTerms* own) const = 0;

  // Sets *outcome to AgreeOnNorm(terms, …).
  virtual void Agree(const NormTerms* terms, int ranks, const MeanConfig& config,
                     NormOutcome* outcome) const = 0;
};

// The loops of fsdp/ on one kind of device.
class ShardKernels {
 public:
  virtual ~ShardKernels() = default;

  // Does what InitializeParameter (initialize.h) does, in double or float, on the current stream, with the
  // same bits on every kind of device.
  virtual void Initialize(uint64_t seed, const Parameter& parameter, const ParameterInit& init, Range part,
                          bool fp64, void* values) const = 0;

  // to[i] = from[i], rounded, on the current stream.
  virtual void Round(const float* from, int64_t elements, Bf16* to) const = 0;

  virtual std::unique_ptr<UnitKernels> MakeUnit(ShardGeometry geometry) const = 0;
  virtual std::unique_ptr<NormKernels> MakeNorm(std::vector<const UnitNormTerms*> units) const = 0;
};

const ShardKernels& CpuShardKernels();

}  // namespace tandem::fsdp
