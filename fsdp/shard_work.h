#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "fsdp/norm_outcome.h"
#include "fsdp/parameter_norms.h"
#include "fsdp/pieces.h"

namespace tandem::fsdp {

struct OptimizerInputs;

// One unit's shards in the device's memory, and where its parameters lie in them.
struct ShardMemory {
  bool fp64 = false;  // or fp32
  void* weight = nullptr;
  void* gradient = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  int64_t begin = 0;           // flat coordinate of the first element
  int64_t shard_elements = 0;  // of each shard
  int num_ranks = 1;
  int64_t granule = 64;
  int num_parameters = 0;
  std::vector<Piece> pieces;
};

// The loops over one unit's shard. Every addition has the same order on each kind of device and for any
// number of ranks: contributions in rank order, squares by chunks that end at multiples of the granule, in
// eight lanes each (norms.h), chunks as a DoubleDouble.
class ShardWork {
 public:
  virtual ~ShardWork() = default;

  // staging: the contributions of all ranks, [num_ranks * shard_elements].
  virtual void Fold(const void* staging, bool add) = 0;

  // Adds the terms of the accumulated gradient. `terms` is in the device's memory.
  virtual void AddTerms(NormTerms* terms) = 0;

  virtual void OptimizerStep(const OptimizerInputs& inputs) = 0;

  // Per parameter, of the last OptimizerStep, once the stream has passed it.
  virtual std::vector<ParameterNorms> norms() const = 0;
};

using MakeShardWork = std::function<std::unique_ptr<ShardWork>(ShardMemory memory)>;

std::unique_ptr<ShardWork> MakeCpuShardWork(ShardMemory memory);

}  // namespace tandem::fsdp
