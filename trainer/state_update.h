// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "device/memory.h"
#include "fsdp/unit_shard.h"
#include "model/precision.h"

namespace tandem::ops {
class Operations;
}

namespace tandem::trainer {

// The memory of one router, whose experts' biases move by the tokens that they got.
struct BiasMemory {
  device::Memory tokens;  // double, of this rank; zeros afterwards
  device::Memory bias;    // of type `BiasesMemory::type`
  bool frozen = false;    // the bias stays as it is
};

struct BiasesMemory {
  device::Memory outcome;  // of the step in which tokens were counted: where it is not applied, biases stay
  std::vector<BiasMemory> routers;
  device::Memory exchanged;  // double: the tokens of all ranks, rank by rank
  model::ComputeType type = model::ComputeType::kFp32;
};

// Exchanges the tokens of all routers (one all-gather), adds them up, and moves every bias that is not frozen
// by `rate` (UpdateRouterBias of `ops`, which outlives the call): the same bits on every rank. Throws
// std::invalid_argument where a size does not fit.
fsdp::BoundCall BindBiasUpdates(comm::Communicator& comm, const BiasesMemory& memory, double rate,
                                const ops::Operations& ops);

}  // namespace tandem::trainer
