// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/thread_communicator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>

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
