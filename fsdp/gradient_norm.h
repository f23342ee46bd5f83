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
  std::vector<device::Memory> norm_terms;  // of this run, for every trainable unit, in unit order
  device::Memory inputs;                   // of this run
  device::Memory outcome;                  // output, OutcomeBytes: a NormOutcome and the exchanged terms
};

struct GradientNormConfig {
  MeanConfig mean;
  // Returns how many targets in this rank's microbatches of the run the loss ignores; called when the norm is
  // issued. If empty, the loss ignores no target.
  std::function<int64_t()> uncounted;
};

// Adds the units' terms in unit order, exchanges them together with the inputs' requests and the number of
// ignored targets (one all-gather), and folds them in rank order, so that the outcome has the same bits on
// every rank. On a GPU the call only enqueues this. Throws std::invalid_argument if a size does not fit.
BoundCall BindGradientNorm(comm::Communicator& comm, const GradientNormMemory& memory,
                           const GradientNormConfig& config, const ShardKernels& kernels);

}  // namespace tandem::fsdp
