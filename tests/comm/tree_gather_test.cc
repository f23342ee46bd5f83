// SPDX-License-Identifier: Apache-2.0
#include "comm/tree_gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "tests/comm/forwarding_communicator.h"
#include "tests/comm/run_thread_ranks.h"
#include "tests/comm/thread_communicator.h"

namespace tandem::comm {
namespace {

// Of another length on every rank; empty on some.
std::string MessageOf(int rank) {
  return std::string(static_cast<size_t>(rank * 7 % 5), static_cast<char>('a' + rank % 26));
}

std::vector<int64_t> BytesOfRanks(int size) {
  std::vector<int64_t> bytes;
  for (int rank = 0; rank < size; ++rank) {
    bytes.push_back(static_cast<int64_t>(MessageOf(rank).size()));
  }
  return bytes;
}

TEST(GatherByTreeTest, RankZeroGetsEveryMessage) {
  for (const int size : {1, 2, 16, 17, 18, 40, 300}) {
    RunThreadRanks(size, [&](Communicator& comm) {
      for (int time = 0; time < 2; ++time) {
        std::string own = MessageOf(comm.rank());
        const std::vector<int64_t> bytes = BytesOfRanks(size);
        const TreeGathered all = GatherByTree(comm, bytes, device::MemoryOf(own));
        ASSERT_EQ(all.of_ranks.size(), comm.rank() == 0 ? static_cast<size_t>(size) : 0u);
        for (size_t rank = 0; rank < all.of_ranks.size(); ++rank) {
          EXPECT_EQ(std::string(all.of_ranks[rank], static_cast<size_t>(bytes[rank])),
                    MessageOf(static_cast<int>(rank)))
              << size << " ranks";
        }
      }
    });
  }
}

class CountingPeers final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  void AllToAllRows(Memory input, const std::vector<int64_t>& sends, Memory output,
                    const std::vector<int64_t>& receives, int64_t row_bytes) override {
    const auto peers = [](const std::vector<int64_t>& rows) {
      return rows.size() - static_cast<size_t>(std::count(rows.begin(), rows.end(), 0));
    };
    receivers = std::max(receivers, peers(sends));
    senders = std::max(senders, peers(receives));
    inner_->AllToAllRows(input, sends, output, receives, row_bytes);
  }

  size_t receivers = 0;
  size_t senders = 0;
};

TEST(GatherByTreeTest, NoRankHasMorePeersThanTheDegree) {
  constexpr int kRanks = 300;
  auto groups = MakeThreadCommunicators("report", kRanks);
  RunThreadRanks(kRanks, [&](int rank) {
    CountingPeers comm(std::move(groups[static_cast<size_t>(rank)]));
    std::string own = "x";
    GatherByTree(comm, std::vector<int64_t>(kRanks, 1), device::MemoryOf(own));
    EXPECT_EQ(comm.receivers, rank == 0 ? 0u : 1u);
    EXPECT_LE(comm.senders, static_cast<size_t>(kTreeDegree));
    EXPECT_EQ(comm.senders > 0, rank <= (kRanks - 2) / kTreeDegree);
  });
}

TEST(GatherByTreeTest, AMessageOfAnotherSizeIsRefused) {
  RunThreadRanks(1, [](Communicator& comm) {
    std::string own = "two";
    EXPECT_THROW(GatherByTree(comm, {2}, device::MemoryOf(own)), std::invalid_argument);
    EXPECT_THROW(GatherByTree(comm, {3, 3}, device::MemoryOf(own)), std::invalid_argument);
  });
}

}  // namespace
}  // namespace tandem::comm
