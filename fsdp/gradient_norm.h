// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "device/memory.h"
#include "fsdp/unit_shard.h"

namespace tandem::fsdp {

struct GradientNormMemory {
  std::vector<device::Memory> norm_terms;  // of this run, of every trainable unit, in unit order
  device::Memory inputs;                   // of this run
  device::Memory outcome;                  // of this run: a NormOutcome and what the exchange needs
};

struct GradientNormConfig {
  double num_microbatches = 1;  // contributions of a step over all ranks; the divisor of the mean
  double max_norm = 0;          // gradients are clipped to this norm; 0: no clipping
};

// Adds the units' terms in unit order, exchanges the sums and the requests of the inputs (one all-gather) and
// folds them in rank order: the outcome is the same bits on every rank. On a GPU all of it is enqueued.
// Throws std::invalid_argument if a size does not fit.
BoundCall BindGradientNorm(comm::Communicator& comm, const GradientNormMemory& memory,
                           const GradientNormConfig& config, const device::Device& device,
                           const ShardKernels& kernels);

}  // namespace tandem::fsdp
