// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "comm/communicator.h"

namespace tandem::comm {

// Runs `rank_main` for ranks 0 to ranks - 1, each on its own thread, and returns when all have ended;
// rethrows the first error. A rank that throws must itself end the collectives of the others, by destroying
// or aborting its communicators.
void RunThreadRanks(int ranks, const std::function<void(int rank)>& rank_main);

// Does this with one group over all ranks, named "test". If a rank throws, the group is aborted.
void RunThreadRanks(int ranks, const std::function<void(Communicator& comm)>& rank_main);

}  // namespace tandem::comm
