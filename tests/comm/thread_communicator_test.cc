// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/thread_communicator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "comm/lone_communicator.h"
#include "tests/comm/collectives.h"
#include "tests/comm/run_thread_ranks.h"
#include "tests/device/tensors.h"

namespace tandem::comm {
namespace {

TEST(ThreadCommunicatorTest, CollectivesMoveTheRightBytes) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    SCOPED_TRACE(ranks);
    RunThreadRanks(ranks, [](Communicator& comm) {
      EXPECT_EQ(comm.name(), "test");
      ExpectCollectivesMoveTheRightBytes(comm);
    });
  }
}

TEST(ThreadCommunicatorTest, AnyTwoRanksTransferBothWays) {
  RunThreadRanks(2, [](Communicator& link) { ExpectTransfersArrive(link); });
}

TEST(ThreadCommunicatorTest, ATransferIsBetweenTwoRanks) {
  const auto three = MakeThreadCommunicators("dp", 3);
  const auto one = MakeLoneCommunicator({.group = "alone"});
  try {
    three[0]->Send(device::MemoryOf(at::zeros({2})));
    FAIL() << "returned";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "Transfer in group dp: it is of two ranks, and this group has 3");
  }
  at::Tensor output = at::zeros({2});
  EXPECT_THROW(one->Receive(device::MemoryOf(output)), std::invalid_argument);
}

TEST(ThreadCommunicatorTest, TensorsThatDoNotFitAreRefused) {
  const auto communicators = MakeThreadCommunicators("dp_cp", 2);
  Communicator& comm = *communicators[0];
  at::Tensor four = at::zeros({4});
  EXPECT_THROW(comm.AllGather(device::MemoryOf(at::zeros({3})), device::MemoryOf(four)),
               std::invalid_argument);
  EXPECT_THROW(comm.AllToAll(device::MemoryOf(at::zeros({2})), device::MemoryOf(four)),
               std::invalid_argument);
  EXPECT_THROW(comm.Gather(device::MemoryOf(at::zeros({3})), device::MemoryOf(four)), std::invalid_argument);
  const at::Tensor three = at::zeros({3}, at::kByte);
  EXPECT_THROW(comm.AllToAll(device::MemoryOf(three), device::MemoryOf(three)), std::invalid_argument);
}

// Memory that no address names any more once it is freed.
class Mapping {
 public:
  explicit Mapping(size_t bytes)
      : bytes_(bytes),
        begin_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~Mapping() { munmap(begin_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  device::Memory memory() const {
    return {.begin = static_cast<char*>(begin_), .bytes = static_cast<int64_t>(bytes_)};
  }

 private:
  const size_t bytes_;
  void* const begin_;
};

TEST(ThreadCommunicatorTest, EndedRanksMemoryIsNotRead) {
  std::mt19937 random(20261129);
  for (int round = 0; round < 100; ++round) {
    const int microseconds = std::uniform_int_distribution(0, 3000)(random);
    SCOPED_TRACE(testing::Message() << "round " << round << ", ended after " << microseconds << " us");
    const auto communicators = MakeThreadCommunicators("dp", 3);
    std::vector<std::thread> ranks;
    for (const auto& comm : communicators) {
      ranks.emplace_back([&comm] {
        try {
          while (true) {
            const Mapping mine(1 << 20);
            const Mapping all(3 << 20);
            comm->AllGather(mine.memory(), all.memory());
          }
        } catch (const CommError&) {
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
    communicators[0]->Abort();
    for (std::thread& rank : ranks) {
      rank.join();
    }
  }
}

TEST(RunThreadRanksTest, FirstErrorEndsTheOthers) {
  try {
    RunThreadRanks(3, [](Communicator& comm) {
      if (comm.rank() == 2) {
        throw std::logic_error("rank 2 fails");
      }
      at::Tensor output = at::zeros({3});
      comm.AllGather(device::MemoryOf(at::zeros({1})), device::MemoryOf(output));
    });
    FAIL() << "returned";
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(), "rank 2 fails");
  }
}

}  // namespace
}  // namespace tandem::comm
