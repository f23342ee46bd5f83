// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/thread_communicator.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <stdexcept>
#include <thread>

#include "comm/lone_communicator.h"
#include "tests/comm/collectives.h"
#include "tests/comm/run_thread_ranks.h"
#include "tests/device/tensors.h"

namespace tandem::comm {
namespace {

using testing::HasSubstr;

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

TEST(ThreadCommunicatorTest, AbortEndsAllRanksCalls) {
  const auto communicators = MakeThreadCommunicators("dp_cp", 3);
  std::string error;
  std::thread waiting([&] {
    at::Tensor output = at::zeros({6});
    try {
      communicators[0]->AllGather(device::MemoryOf(at::zeros({2})), device::MemoryOf(output));
    } catch (const CommError& e) {
      error = e.what();
    }
  });
  while (communicators[0]->num_collectives() == 0) {
    std::this_thread::yield();
  }
  communicators[1]->Abort();
  waiting.join();
  EXPECT_EQ(error, "group dp_cp rank 0 AllGather: rank 1 aborted");
  at::Tensor output = at::zeros({6});
  EXPECT_THROW(communicators[1]->AllGather(device::MemoryOf(at::zeros({2})), device::MemoryOf(output)),
               CommError);
  EXPECT_EQ(communicators[1]->num_collectives(), 0u);
  EXPECT_THROW(communicators[2]->AllGather(device::MemoryOf(at::zeros({2})), device::MemoryOf(output)),
               CommError);
}

TEST(ThreadCommunicatorTest, ARankThatIsGoneIsNamed) {
  auto communicators = MakeThreadCommunicators("dp_cp", 2);
  communicators[1].reset();
  at::Tensor output = at::zeros({2});
  try {
    communicators[0]->AllToAll(device::MemoryOf(at::zeros({2})), device::MemoryOf(output));
    FAIL() << "returned";
  } catch (const CommError& error) {
    EXPECT_STREQ(error.what(), "group dp_cp rank 0 AllToAll: rank 1 is gone");
  }
}

TEST(ThreadCommunicatorTest, DifferentCallsAreAnErrorOnEveryRank) {
  auto communicators = MakeThreadCommunicators("dp_cp", 2);
  std::string errors[2];
  RunThreadRanks(2, [&](int rank) {
    at::Tensor output = at::zeros({4});
    try {
      if (rank == 0) {
        communicators[0]->AllGather(device::MemoryOf(at::zeros({2})), device::MemoryOf(output));
      } else {
        communicators[1]->AllToAll(device::MemoryOf(at::zeros({4})), device::MemoryOf(output));
      }
    } catch (const CommError& error) {
      errors[rank] = error.what();
    }
  });
  // One of them sees both calls; the other may learn it from that one.
  EXPECT_THAT(errors[0], HasSubstr("group dp_cp rank 0 AllGather"));
  EXPECT_THAT(errors[1], HasSubstr("group dp_cp rank 1 AllToAll"));
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
