// SPDX-License-Identifier: Apache-2.0
#include "comm/tree_gather.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace tandem::comm {
namespace {

int ParentOf(int rank) { return (rank - 1) / kTreeDegree; }

int LevelOf(int rank) {
  int level = 0;
  for (; rank > 0; rank = ParentOf(rank)) {
    ++level;
  }
  return level;
}

}  // namespace

TreeGathered GatherByTree(Communicator& comm, const std::vector<int64_t>& bytes, Memory own) {
  const int size = comm.size();
  if (static_cast<int>(bytes.size()) != size || own.bytes != bytes[static_cast<size_t>(comm.rank())]) {
    throw std::invalid_argument("a message of " + std::to_string(own.bytes) + " bytes is not rank " +
                                std::to_string(comm.rank()) + "'s of " + std::to_string(bytes.size()));
  }
  std::vector<int64_t> subtree = bytes;  // by rank, with all ranks below it; children have larger numbers
  for (int rank = size - 1; rank > 0; --rank) {
    subtree[ParentOf(rank)] += subtree[rank];
  }
  TreeGathered result;
  result.bytes.resize(static_cast<size_t>(subtree[comm.rank()]));
  if (own.bytes > 0) {
    std::memcpy(result.bytes.data(), own.begin, static_cast<size_t>(own.bytes));
  }
  const Memory all = device::MemoryOf(result.bytes);
  const Memory below{.begin = all.begin + own.bytes, .bytes = all.bytes - own.bytes};
  const int own_level = LevelOf(comm.rank());
  for (int level = LevelOf(size - 1); level > 0; --level) {
    std::vector<int64_t> sends(static_cast<size_t>(size), 0);
    std::vector<int64_t> receives = sends;
    if (own_level == level) {
      sends[ParentOf(comm.rank())] = all.bytes;
    }
    if (own_level == level - 1) {
      const int first = kTreeDegree * comm.rank() + 1;
      for (int child = first; child < std::min(size, first + kTreeDegree); ++child) {
        receives[child] = subtree[child];
      }
    }
    comm.AllToAllRows(all, sends, below, receives, /*row_bytes=*/1);
  }
  if (comm.rank() > 0) {
    return {};
  }
  // A rank's message is followed by those of its first child's subtree, then of the next.
  result.of_ranks.push_back(all.begin);
  std::vector<int64_t> end(static_cast<size_t>(size));  // by rank: the end of what is placed of its subtree
  end[0] = bytes[0];
  for (int rank = 1; rank < size; ++rank) {
    int64_t& before = end[ParentOf(rank)];
    result.of_ranks.push_back(all.begin + before);
    end[rank] = before + bytes[rank];
    before += subtree[rank];
  }
  return result;
}

}  // namespace tandem::comm
