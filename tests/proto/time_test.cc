// SPDX-License-Identifier: Apache-2.0
#include "proto/time.h"

#include <gtest/gtest.h>

namespace tandem::proto {
namespace {

TEST(ProtoTimeTest, TimesAndDurationsComeBackToTheNanosecond) {
  const absl::Time time = absl::FromUnixNanos(1'700'000'000'123'456'789);
  EXPECT_EQ(ToProto(time).seconds(), 1'700'000'000);
  EXPECT_EQ(ToProto(time).nanos(), 123'456'789);
  EXPECT_EQ(FromProto(ToProto(time)), time);
  for (const absl::Duration span :
       {absl::Nanoseconds(-1'500'000'001), absl::ZeroDuration(), absl::Hours(20'000)}) {
    EXPECT_EQ(FromProto(ToProto(span)), span);
  }
}

TEST(ProtoTimeTest, UnsetTimesAreZero) {
  EXPECT_EQ(FromProto(google::protobuf::Timestamp()), absl::UnixEpoch());
  EXPECT_EQ(FromProto(google::protobuf::Duration()), absl::ZeroDuration());
}

}  // namespace
}  // namespace tandem::proto
