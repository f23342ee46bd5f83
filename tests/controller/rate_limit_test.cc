// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/rate_limit.h"

#include <gtest/gtest.h>

#include "tests/platform/fake_clock.h"

namespace tandem::controller {
namespace {

TEST(RateLimitTest, EachCallerHasABurstAndARate) {
  platform::FakeClock clock;
  RateLimit limit(/*per_second=*/10, /*burst=*/3, clock);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(limit.Take("alice"), absl::ZeroDuration());
  }
  EXPECT_EQ(limit.Take("alice"), absl::Milliseconds(100));
  EXPECT_EQ(limit.Take("bob"), absl::ZeroDuration());
  clock.Advance(absl::Milliseconds(50));
  EXPECT_EQ(limit.Take("alice"), absl::Milliseconds(50)) << "what was refused does not count";
  clock.Advance(absl::Milliseconds(50));
  EXPECT_EQ(limit.Take("alice"), absl::ZeroDuration());
  EXPECT_GT(limit.Take("alice"), absl::ZeroDuration());
  clock.Advance(absl::Hours(1));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(limit.Take("alice"), absl::ZeroDuration()) << "never more than a burst";
  }
  EXPECT_GT(limit.Take("alice"), absl::ZeroDuration());
}

}  // namespace
}  // namespace tandem::controller
