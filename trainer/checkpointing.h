#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "fsdp/sharded_unit.h"

namespace at {
class Tensor;
}

namespace tandem::trainer {

// A rank's whole state as arrays of a checkpoint: per unit "<unit>/weights", "<unit>/exp_avg" and
// "<unit>/exp_avg_sq". The data position needs no state: it follows from the step.
//
// The shards are of host memory: on the CPU the units' own, on a GPU copies as large as that state, which are
// made at their first use and kept.
class StateArrays {
 public:
  // The units' memory outlives it.
  explicit StateArrays(const std::vector<fsdp::ShardedUnit>& units);
  ~StateArrays();

  const std::vector<checkpoint::Shard>& shards();

  // Copies the units' state to the shards, or the shards to the units, and waits. Between programs.
  void FromDevice();
  void ToDevice();

 private:
  std::vector<at::Tensor> device_;
  std::vector<at::Tensor> host_;  // the same tensors where they are on the host; undefined: not used yet
  std::vector<checkpoint::Shard> shards_;
};

}  // namespace tandem::trainer
