// SPDX-License-Identifier: Apache-2.0
#include "proto/names.h"

#include <gtest/gtest.h>

#include "tandem/v1/state.pb.h"

namespace tandem::proto {
namespace {

TEST(NamesTest, LoseThePrefixOfTheirType) {
  EXPECT_EQ(ValueName(v1::JOB_STATE_RUNNING), "RUNNING");
  EXPECT_EQ(ValueName(v1::FAILURE_CLASS_OUT_OF_MEMORY), "OUT_OF_MEMORY");
  EXPECT_EQ(LowerName(v1::DEVICE_CUDA), "cuda");
}

TEST(NamesTest, UnknownNumberIsItsDigits) { EXPECT_EQ(ValueName(static_cast<v1::JobState>(77)), "77"); }

// ValueName counts on it.
TEST(NamesTest, EveryEnumBeginsWithItsUnspecifiedValue) {
  for (const google::protobuf::FileDescriptor* file :
       {v1::Job::descriptor()->file(), v1::JobSpec::descriptor()->file()}) {
    for (int i = 0; i < file->enum_type_count(); ++i) {
      EXPECT_TRUE(file->enum_type(i)->value(0)->name().ends_with("_UNSPECIFIED"))
          << file->enum_type(i)->name();
    }
  }
}

}  // namespace
}  // namespace tandem::proto
