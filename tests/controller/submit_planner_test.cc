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

TEST(SubmitPlannerTest, ASpecIsDoneWhenItIsChosenAndNotBefore) {
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

TEST(SubmitPlannerTest, WhoeverCannotBeChosenForGetsTheReason) {
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

// Every one that was taken is answered once, also those that still wait when it ends.
TEST(SubmitPlannerTest, TooManyAreRefusedAndTheOthersAnsweredAtTheEnd) {
  absl::Notification begun;
  absl::Notification go_on;
  std::atomic<int> chosen = 0;
  std::atomic<int> unavailable = 0;
  int taken = 0;
  {
    SubmitPlanner planner([&](v1::JobSpec& resolved) {
      if (resolved.name() == "job-0") {
        begun.Notify();
        go_on.WaitForNotification();
      }
      return absl::OkStatus();
    });
    const auto done = [&](const absl::Status& status, const v1::JobSpec&) {
      ++(status.ok() ? chosen : unavailable);
    };
    ASSERT_TRUE(planner.Post(Named(0), done).ok());
    begun.WaitForNotification();
    absl::Status status;
    for (taken = 0; status.ok(); ++taken) {
      status = planner.Post(Named(taken + 1), done);
    }
    --taken;
    EXPECT_EQ(taken, static_cast<int>(SubmitPlanner::kMostWaiting));
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    go_on.Notify();
  }
  EXPECT_EQ(chosen + unavailable, taken + 1);
  EXPECT_GE(chosen, 1);
}

}  // namespace
}  // namespace tandem::controller
