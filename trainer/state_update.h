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

// The memory of one router, whose biases are adjusted by the number of tokens that each expert got.
struct BiasMemory {
  device::Memory tokens;  // this rank's counts as doubles; set to zeros by the update
  device::Memory bias;    // elements of BiasesMemory::type
  bool frozen = false;    // if true, the bias does not change
};

struct BiasesMemory {
  // The fsdp::NormOutcome of the step in which the tokens were counted. If the step was not applied, biases
  // do not change.
  device::Memory outcome;
  std::vector<BiasMemory> routers;
  device::Memory exchanged;  // doubles: the counts of all ranks, one rank after the other
  model::ComputeType type = model::ComputeType::kFp32;
};

// Returns a call that exchanges the counts of all routers (one all-gather), adds them up, and changes every
// bias that is not frozen by `rate` (UpdateRouterBias of `ops`, which must outlive the call). Every rank gets
// the same bits. Throws std::invalid_argument if a size does not fit.
fsdp::BoundCall BindBiasUpdates(comm::Communicator& comm, const BiasesMemory& memory, double rate,
                                const ops::Operations& ops);

}  // namespace tandem::trainer
