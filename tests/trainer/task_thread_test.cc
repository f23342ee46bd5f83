// SPDX-License-Identifier: Apache-2.0
#include "trainer/task_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "schedules/program/program.h"
#include "trainer/stage_memory.h"

namespace tandem::trainer {
namespace {

constexpr absl::Duration kTaskPatience = absl::Seconds(120);

void NoFailure(const std::exception_ptr& /*error*/) { ADD_FAILURE() << "a task threw"; }

TEST(TaskThreadTest, CallbacksPrecedeTheEnd) {
  TaskThread thread("task", NoFailure);
  absl::Notification goes_on;
  thread.Begin(3, [&] {
    EXPECT_TRUE(goes_on.WaitForNotificationWithTimeout(kTaskPatience));
    return "no room";
  });
  std::atomic<int> called{0};
  for (int i = 0; i < 2; ++i) {
    thread.WhenDone([&](const std::string& error) {
      EXPECT_EQ(error, "no room");
      ++called;
    });
  }
  EXPECT_EQ(called, 0);
  goes_on.Notify();
  TaskThread::Ended ended = thread.Await();
  EXPECT_EQ(called, 2);
  EXPECT_EQ(ended.step, 3);
  EXPECT_EQ(ended.error, "no room");
  ended = thread.Await();  // nothing since
  EXPECT_EQ(ended.step, 0);
  EXPECT_EQ(ended.error, "");
}

TEST(TaskThreadTest, NewestTaskAnswersWithoutOneInProgress) {
  TaskThread thread("task", NoFailure);
  std::vector<std::string> errors;
  const auto add = [&](const std::string& error) { errors.push_back(error); };
  thread.WhenDone(add);
  thread.Begin(1, [] { return "failed"; });
  thread.Await();
  thread.WhenDone(add);
  thread.Begin(2, [] { return ""; });
  thread.Await();
  thread.WhenDone(add);
  EXPECT_EQ(errors, (std::vector<std::string>{"", "failed", ""}));
}

TEST(TaskThreadTest, ExceptionIsReportedAndThrown) {
  absl::Notification failed;
  TaskThread thread("task", [&](const std::exception_ptr& error) {
    EXPECT_NE(error, nullptr);
    failed.Notify();
  });
  thread.Begin(1, []() -> std::string { throw std::runtime_error("lost"); });
  EXPECT_THROW(thread.Await(), std::runtime_error);
  EXPECT_TRUE(failed.WaitForNotificationWithTimeout(kTaskPatience));
  EXPECT_THROW(thread.Await(), std::runtime_error);
  thread.WhenDone([](const std::string&) { ADD_FAILURE() << "no task has succeeded"; });
}

TEST(TaskThreadTest, RunningTaskEndsBeforeItsThread) {
  bool ended = false;
  {
    TaskThread thread("task", NoFailure);
    thread.Begin(1, [&] {
      ended = true;
      return "";
    });
  }
  EXPECT_TRUE(ended);
}

TEST(HostRoomTest, TenthOfEachMachineIsSpared) {
  const auto room = [](const std::string& host, int64_t wanted, int64_t available) {
    return ToText({.host = host, .wanted = wanted << 30, .available = available << 30});
  };
  EXPECT_EQ(WhyNoRoom({room("a", 4, 10), room("b", 9, 10), room("a", 5, 10)}), "");
  EXPECT_EQ(
      WhyNoRoom({room("a", 4, 10), room("b", 9, 10), room("a", 6, 11)}),
      "machine a has 10.00 GiB of memory available, and may give 90 % of it to its ranks, which take "
      "10.00 GiB with the copies that checkpoints are written from; give it more memory, or fewer ranks");
}

}  // namespace
}  // namespace tandem::trainer
