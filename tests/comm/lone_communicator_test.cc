// SPDX-License-Identifier: Apache-2.0
#include "comm/lone_communicator.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <utility>

#include "device/device.h"
#include "tests/comm/collectives.h"
#include "tests/device/tensors.h"

namespace tandem::comm {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::unique_ptr<Communicator> Make() {
  return MakeLoneCommunicator({.group = "dp_cp", .prefix = "1/dp_cp", .ranks = {5}});
}

TEST(LoneCommunicatorTest, CollectivesMoveTheRightBytes) {
  const auto comm = Make();
  EXPECT_EQ(comm->name(), "dp_cp");
  EXPECT_EQ(comm->rank(), 0);
  EXPECT_EQ(comm->size(), 1);
  ExpectCollectivesMoveTheRightBytes(*comm);
  EXPECT_NO_THROW(comm->CheckPending());
  EXPECT_GT(comm->num_collectives(), 0u);
  EXPECT_EQ(comm->num_ended(), comm->num_collectives());
}

TEST(LoneCommunicatorTest, InputInsideTheOutputStays) {
  const auto comm = Make();
  at::Tensor both = at::arange(4);
  comm->AllGather(device::MemoryOf(both), device::MemoryOf(both));
  EXPECT_TRUE(at::equal(both, at::arange(4)));
}

TEST(LoneCommunicatorTest, RowsBehindSentOnesStay) {
  const auto comm = Make();
  at::Tensor output = at::full({3, 2}, -1.F);
  comm->AllToAllRows(device::MemoryOf(at::ones({4, 2})), {2}, device::MemoryOf(output), {2},
                     device::RowBytesOf(output));
  EXPECT_TRUE(at::equal(output, at::tensor({1.F, 1.F, 1.F, 1.F, -1.F, -1.F}).view({3, 2})));
  EXPECT_THAT(
      [&] {
        comm->AllToAllRows(device::MemoryOf(at::ones({4, 2})), {2}, device::MemoryOf(output), {1},
                           device::RowBytesOf(output));
      },
      ThrowsMessage<CommError>(
          HasSubstr("group dp_cp rank 5 AllToAllRows of 8 bytes: the same rank sends 16")));
}

TEST(LoneCommunicatorTest, WhatDoesNotFitIsRefused) {
  const auto comm = Make();
  at::Tensor output = at::zeros({3});
  EXPECT_THROW(comm->AllGather(device::MemoryOf(at::zeros({2})), device::MemoryOf(output)),
               std::invalid_argument);
  EXPECT_EQ(comm->num_collectives(), 0u);
}

TEST(LoneCommunicatorTest, NoCallStartsAfterAbort) {
  const auto comm = Make();
  comm->Abort();
  at::Tensor output = at::zeros({2});
  EXPECT_THAT([&] { comm->AllGather(device::MemoryOf(at::ones({2})), device::MemoryOf(output)); },
              ThrowsMessage<CommError>("group dp_cp rank 5 AllGather: aborted"));
  EXPECT_EQ(comm->num_collectives(), 0u);
  EXPECT_TRUE(at::equal(output, at::zeros({2})));
}

TEST(LoneCommunicatorTest, RegionLivesAsLongAsTheCommunicator) {
  auto comm = Make();
  std::shared_ptr<const device::Region> region = device::MakeCpuDevice()->ReserveHost(64);
  const std::weak_ptr<const device::Region> kept = region;
  EXPECT_TRUE(comm->RegisterWindow(std::move(region)).ok());
  EXPECT_FALSE(kept.expired());
  comm.reset();
  EXPECT_TRUE(kept.expired());
}

TEST(LoneCommunicatorTest, AGroupOfSeveralIsRefused) {
  EXPECT_THROW(MakeLoneCommunicator({.group = "dp_cp", .size = 2}), std::invalid_argument);
}

}  // namespace
}  // namespace tandem::comm
