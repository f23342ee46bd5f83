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
  std::vector<device::Memory> norm_terms;  // of this run, of every trainable unit, in unit order
  device::Memory inputs;                   // of this run
  device::Memory outcome;                  // of this run: a NormOutcome and what the exchange needs
};

struct GradientNormConfig {
  MeanConfig mean;
  // Targets of this rank's microbatches of the run that do not count; called when the norm is issued. Empty:
  // all count.
  std::function<int64_t()> uncounted;
};

// Adds the units' terms in unit order, exchanges the sums, the requests of the inputs and the numbers of
// targets that do not count (one all-gather) and
// folds them in rank order: the outcome is the same bits on every rank. On a GPU all of it is enqueued.
// Throws std::invalid_argument if a size does not fit.
BoundCall BindGradientNorm(comm::Communicator& comm, const GradientNormMemory& memory,
                           const GradientNormConfig& config, const ShardKernels& kernels);

}  // namespace tandem::fsdp
