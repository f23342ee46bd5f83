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

// The memory of one router. The biases of its experts move according to the tokens that the experts got.
struct BiasMemory {
  device::Memory tokens;  // this rank's counts as doubles; zeros afterwards
  device::Memory bias;    // elements of BiasesMemory::type
  bool frozen = false;    // if true, the bias does not move
};

struct BiasesMemory {
  // Of the step in which tokens were counted; if it was not applied, biases do not move.
  device::Memory outcome;
  std::vector<BiasMemory> routers;
  device::Memory exchanged;  // doubles: the counts of all ranks, one rank after the other
  model::ComputeType type = model::ComputeType::kFp32;
};

// Exchanges the counts of all routers (one all-gather), adds them up, and moves every bias that is not frozen
// by `rate` (UpdateRouterBias of `ops`, which outlives the call). Every rank gets the same bits. Throws
// std::invalid_argument if a size does not fit.
fsdp::BoundCall BindBiasUpdates(comm::Communicator& comm, const BiasesMemory& memory, double rate,
                                const ops::Operations& ops);

}  // namespace tandem::trainer
