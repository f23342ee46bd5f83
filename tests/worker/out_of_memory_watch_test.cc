// SPDX-License-Identifier: Apache-2.0
#include "worker/out_of_memory_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/platform/fake_clock.h"

namespace tandem::worker {
namespace {

using testing::HasSubstr;

class OutOfMemoryWatchTest : public testing::Test {
 protected:
  void LookAfter(absl::Duration time) {
    clock_.Advance(time);
    watch_.Look();
  }

  platform::FakeClock clock_;
  int64_t kills_ = 3;
  OutOfMemoryWatch watch_{clock_, [this] { return kills_; }, int64_t{16} << 30};
};

TEST_F(OutOfMemoryWatchTest, KernelsKillReportsMemoryHeld) {
  LookAfter(absl::Seconds(60));
  ++kills_;
  EXPECT_THAT(watch_.WhyKilled(int64_t{3} << 29), HasSubstr("when it held 1.50 GiB of the 16.00 GiB"));
  watch_.Look();  // which comes between a kill and its death's
  EXPECT_THAT(watch_.WhyKilled(1), HasSubstr("out of memory: "));
}

TEST_F(OutOfMemoryWatchTest, AnotherKillIsNotOfMemory) {
  LookAfter(absl::Seconds(60));
  EXPECT_EQ(watch_.WhyKilled(1), "");
}

TEST_F(OutOfMemoryWatchTest, AnOldKillExplainsNothing) {
  ++kills_;
  LookAfter(absl::Seconds(60));
  LookAfter(absl::Seconds(60));
  EXPECT_EQ(watch_.WhyKilled(1), "");
}

}  // namespace
}  // namespace tandem::worker
