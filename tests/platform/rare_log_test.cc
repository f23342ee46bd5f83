// SPDX-License-Identifier: Apache-2.0
#include "platform/rare_log.h"

#include <gtest/gtest.h>

namespace tandem::platform {
namespace {

TEST(RareLogTest, FirstIsLoggedThenOneInTenSeconds) {
  RareLog log;
  const absl::Time begin = absl::UnixEpoch();
  EXPECT_EQ(log.Count(begin), 1);
  EXPECT_EQ(log.Count(begin + absl::Seconds(1)), 0);
  EXPECT_EQ(log.Count(begin + absl::Seconds(9)), 0);
  EXPECT_EQ(log.Count(begin + absl::Seconds(10)), 3);
  EXPECT_EQ(log.Count(begin + absl::Seconds(11)), 0);
  log.Reset();
  EXPECT_EQ(log.Count(begin + absl::Seconds(12)), 2);
}

}  // namespace
}  // namespace tandem::platform
