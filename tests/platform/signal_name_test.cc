// SPDX-License-Identifier: Apache-2.0
#include "platform/signal_name.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace tandem::platform {
namespace {

TEST(SignalNameTest, UnknownSignalIsItsNumber) {
  EXPECT_EQ(SignalName(SIGTERM), "SIGTERM");
  EXPECT_EQ(SignalName(200), "signal 200");
}

}  // namespace
}  // namespace tandem::platform
