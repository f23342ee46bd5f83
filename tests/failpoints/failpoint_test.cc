// SPDX-License-Identifier: Apache-2.0
#include "platform/failpoint.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace tandem::platform {
namespace {

TEST(FailpointTest, DoesNothingWhereItIsNotNamed) {
  ASSERT_TRUE(SetFailpoints("other=kill").ok());
  TANDEM_FAILPOINT("this");
}

TEST(FailpointDeathTest, KillsAsAPowerCutWould) {
  EXPECT_EXIT(
      {
        if (SetFailpoints("other=kill,this=kill").ok()) {
          TANDEM_FAILPOINT("this");
        }
      },
      testing::KilledBySignal(SIGKILL), "");
}

TEST(FailpointDeathTest, KillsAtTheNthTime) {
  EXPECT_EXIT(
      {
        if (SetFailpoints("this=kill@3").ok()) {
          TANDEM_FAILPOINT("this");
          TANDEM_FAILPOINT("this");
          fprintf(stderr, "alive");
          TANDEM_FAILPOINT("this");
        }
      },
      testing::KilledBySignal(SIGKILL), "alive");
}

TEST(FailpointTest, NamesWhatItCannotRead) {
  for (const char* const spec : {"", "x", "x=die", "=kill", "x=kill@0", "x=kill@y", "x=kill,", "x=killer"}) {
    const absl::Status status = SetFailpoints(spec);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << spec;
    EXPECT_NE(status.message().find("NAME=kill"), absl::string_view::npos) << status;
  }
}

}  // namespace
}  // namespace tandem::platform
