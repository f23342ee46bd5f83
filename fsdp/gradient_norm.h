// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "device/memory.h"
#include "fsdp/norm_outcome.h"
#include "fsdp/unit_shard.h"

namespace tandem::fsdp {

struct GradientNormMemory {
  std::vector<device::Memory> norm_terms;  // those of this run, of every trainable unit, in unit order
  device::Memory inputs;                   // of this run
  device::Memory outcome;                  // of this run: a NormOutcome and the memory of the exchange
};

struct GradientNormConfig {
  MeanConfig mean;
  // Returns how many targets of this rank's microbatches of the run do not count; called when the norm is
  // issued. Empty: all count.
  std::function<int64_t()> uncounted;
};

// Adds the units' terms in unit order, exchanges them with the inputs' requests and the number of targets
// that do not count (one all-gather), and folds them in rank order, so that every rank has the same bits as
// outcome. On a GPU all of it is enqueued. Throws std::invalid_argument if a size does not fit.
BoundCall BindGradientNorm(comm::Communicator& comm, const GradientNormMemory& memory,
                           const GradientNormConfig& config, const ShardKernels& kernels);

}  // namespace tandem::fsdp
