// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/submit_planner.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"

namespace tandem::controller {
namespace {

v1::JobSpec Named(int number) {
  v1::JobSpec spec;
  spec.set_name("job-" + std::to_string(number));
  return spec;
}

TEST(SubmitPlannerTest, SpecIsDoneOnceChosen) {
  absl::Notification chosen;
  absl::Notification done;
  v1::JobSpec result;
  SubmitPlanner planner([&](v1::JobSpec& resolved) {
    chosen.WaitForNotification();
    resolved.mutable_parallelism()->mutable_fsdp()->set_prefetch(2);
    return absl::OkStatus();
  });
  ASSERT_TRUE(planner
                  .Post(Named(1),
                        [&](const absl::Status& status, v1::JobSpec resolved) {
                          EXPECT_TRUE(status.ok());
                          result = std::move(resolved);
                          done.Notify();
                        })
                  .ok())
      << "the caller does not wait";
  EXPECT_FALSE(done.HasBeenNotified());
  chosen.Notify();
  done.WaitForNotification();
  EXPECT_EQ(result.name(), "job-1");
  EXPECT_EQ(result.parallelism().fsdp().prefetch(), 2);
}

TEST(SubmitPlannerTest, FailedChoiceReturnsTheReason) {
  absl::Notification done;
  SubmitPlanner planner([](v1::JobSpec&) { return absl::InternalError("no plan"); });
  ASSERT_TRUE(planner
                  .Post(Named(1),
                        [&](const absl::Status& status, const v1::JobSpec&) {
                          EXPECT_EQ(status.message(), "no plan");
                          done.Notify();
                        })
                  .ok());
  done.WaitForNotification();
}

// Those that wait are answered while the first is still planned, so that a controller that stops does not
// wait.
TEST(SubmitPlannerTest, ClosingAnswersWaitingCallers) {
  absl::Notification begun;
  absl::Notification go_on;
  std::atomic<int> chosen = 0;
  std::atomic<int> unavailable = 0;
  {
    SubmitPlanner planner([&](v1::JobSpec&) {
      begun.Notify();
      go_on.WaitForNotification();
      return absl::OkStatus();
    });
    const auto done = [&](const absl::Status& status, const v1::JobSpec&) {
      ++(status.ok() ? chosen : unavailable);
    };
    ASSERT_TRUE(planner.Post(Named(0), done).ok());
    begun.WaitForNotification();
    for (int i = 0; i < static_cast<int>(SubmitPlanner::kMostWaiting); ++i) {
      ASSERT_TRUE(planner.Post(Named(i + 1), done).ok());
    }
    EXPECT_TRUE(absl::IsResourceExhausted(planner.Post(Named(99), done)));
    planner.Close();
    EXPECT_EQ(chosen, 0);
    EXPECT_EQ(unavailable, static_cast<int>(SubmitPlanner::kMostWaiting));
    EXPECT_TRUE(absl::IsUnavailable(planner.Post(Named(99), done)));
    go_on.Notify();
  }
  EXPECT_EQ(chosen, 1);
}

}  // namespace
}  // namespace tandem::controller
