// SPDX-License-Identifier: Apache-2.0
#include "platform/clock.h"

#include <gtest/gtest.h>
#include <time.h>

#include "absl/time/clock.h"
#include "platform/build_info.h"
#include "platform/check.h"

namespace tandem::platform {
namespace {

TEST(ClockTest, SteadyClockNeverGoesBack) {
  absl::Time last = SteadyClock().Now();
  EXPECT_LT(absl::AbsDuration(last - absl::Now()), absl::Minutes(1));
  for (int i = 0; i < 1000; ++i) {
    const absl::Time now = SteadyClock().Now();
    EXPECT_LE(last, now);
    last = now;
  }
}

TEST(ClockTest, BootClockRunsDuringSleep) {
  const auto now = [] {
    timespec time;
    EXPECT_EQ(clock_gettime(CLOCK_BOOTTIME, &time), 0);
    return absl::TimeFromTimespec(time);
  };
  const absl::Time before = now();
  const absl::Time read = BootClock().Now();
  EXPECT_LE(before, read);
  EXPECT_LE(read, now());
}

TEST(BuildInfoTest, IsVersionAndCommit) {
  EXPECT_TRUE(
      testing::internal::RE::FullMatch(BuildVersion(), "[0-9]+\\.[0-9]+\\.[0-9]+\\+([0-9a-f]+|unknown)"))
      << BuildVersion();
}

TEST(CheckDeathTest, EndsTheProcessWithPlaceAndMessage) {
  EXPECT_DEATH(TANDEM_CHECK(1 + 1 == 3, "sums are right"), "sums are right.*1 \\+ 1 == 3.*clock_test");
}

}  // namespace
}  // namespace tandem::platform
