// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/work_together.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/comm/run_thread_ranks.h"

namespace tandem::checkpoint {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string TextOf(int rank) { return std::string(static_cast<size_t>(rank), 'x'); }

TEST(ExchangeTest, EveryRankGetsEveryText) {
  comm::RunThreadRanks(3, [](comm::Communicator& comm) {
    EXPECT_THAT(ExchangeTexts(comm, TextOf(comm.rank())), ElementsAre("", "x", "xx"));
    EXPECT_THAT(ExchangeTexts(comm, ""), ElementsAre("", "", ""));
    EXPECT_EQ(TextOfRankZero(comm, std::to_string(comm.rank())), "0");
  });
}

// Those of a thousand ranks about their files are hundreds of megabytes.
TEST(ExchangeTest, GatherReachesOnlyRankZero) {
  comm::RunThreadRanks(3, [](comm::Communicator& comm) {
    const std::vector<std::string> texts = GatherTexts(comm, TextOf(comm.rank()));
    const std::vector<std::string> empty = GatherTexts(comm, "");
    if (comm.rank() == 0) {
      EXPECT_THAT(texts, ElementsAre("", "x", "xx"));
      EXPECT_THAT(empty, ElementsAre("", "", ""));
    } else {
      EXPECT_THAT(texts, IsEmpty());
      EXPECT_THAT(empty, IsEmpty());
    }
  });
}

}  // namespace
}  // namespace tandem::checkpoint
