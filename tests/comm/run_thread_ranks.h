// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "comm/communicator.h"

namespace tandem::comm {

// Runs `rank_main` for rank 0 … ranks - 1, each on its own thread, and returns when all have
// ended; rethrows the first error. A rank that throws must end the others' collectives itself, by
// destroying its communicators or aborting them.
void RunThreadRanks(int ranks, const std::function<void(int rank)>& rank_main);

// The same with one group over all ranks, named "test"; the group of a rank that throws is aborted.
void RunThreadRanks(int ranks, const std::function<void(Communicator& comm)>& rank_main);

}  // namespace tandem::comm
