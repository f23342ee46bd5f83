// SPDX-License-Identifier: Apache-2.0
#include "platform/thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/platform/no_threads.h"

namespace tandem::platform {
namespace {

TEST(ThreadTest, LackOfThreadsIsAnError) {
  bool ran = false;
  {
    const NoThreads none;
    EXPECT_EQ(StartThread([&] { ran = true; }).status(),
              absl::UnavailableError("start a thread: Resource temporarily unavailable; raise the limit of "
                                     "processes (ulimit -u, TasksMax of systemd, pids of a container)"));
  }
  EXPECT_FALSE(ran);
  absl::StatusOr<std::thread> thread = StartThread([&] { ran = true; });
  ASSERT_TRUE(thread.ok()) << thread.status();
  thread->join();
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace tandem::platform
