// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"

namespace tandem::comm {

// The most ranks that one rank receives from.
inline constexpr int kTreeDegree = 16;

// What rank 0 has got: of_ranks[r] begins rank r's message. On other ranks of_ranks is empty.
struct TreeGathered {
  std::vector<char> bytes;
  std::vector<const char*> of_ranks;
};

// Collective: gathers to rank 0 along a tree by rank, in which rank r > 0 sends its message and those of the
// ranks below it to rank (r - 1) / kTreeDegree. One AllToAllRows a level, and most ranks take part in one.
// bytes: of every rank's message, the same list on every rank; own: this rank's message. Throws as these do.
TreeGathered GatherByTree(Communicator& comm, const std::vector<int64_t>& bytes, Memory own);

}  // namespace tandem::comm
