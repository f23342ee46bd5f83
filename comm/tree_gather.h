// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"

namespace tandem::comm {

// The most ranks that one rank receives from.
inline constexpr int kTreeDegree = 16;

// The messages that rank 0 received: of_ranks[r] points to the beginning of rank r's. Empty on other ranks.
struct TreeGathered {
  std::vector<char> bytes;
  std::vector<const char*> of_ranks;
};

// Collective: gathers a message of each rank to rank 0 along a tree, in which rank r > 0 sends its own
// message and those of the ranks below it to rank (r - 1) / kTreeDegree. Calls AllToAllRows once for each
// level of the tree; most ranks send in only one of these calls. `bytes` is the size of every rank's message,
// the same list on every rank; `own` is this rank's message. Throws what AllToAllRows throws.
TreeGathered GatherByTree(Communicator& comm, const std::vector<int64_t>& bytes, Memory own);

}  // namespace tandem::comm
