// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "controller/core/checkpoints.h"
#include "proto/names.h"
#include "proto/reasons.h"
#include "proto/time.h"
#include "tests/controller/job_builder.h"

namespace tandem::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(NoticesTest, CheckpointsAreReportedOnce) {
  Driver driver(v1::JOB_STATE_RUNNING);
  v1::CheckpointNotice notice = Noticed().notice;
  notice.mutable_committed()->set_step(10);
  notice.mutable_committed()->set_path("runs/step-10");
  EXPECT_EQ(driver.Feed(CheckpointNoticed{.worker = "a", .notice = notice}).events.size(), 1U);
  EXPECT_EQ(driver.Feed(CheckpointNoticed{.worker = "a", .notice = notice}).events.size(), 0U);
  notice.mutable_id()->set_attempt(2);
  notice.mutable_committed()->set_step(20);
  EXPECT_EQ(driver.Feed(CheckpointNoticed{.worker = "a", .notice = notice}).events.size(), 0U)
      << "not that attempt";
  EXPECT_EQ(driver.Job().last_step(), 10);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING);
}

TEST(NoticesTest, OnlyTheAttemptsWorkersReportCheckpoints) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Connect("stranger", 1);
  CheckpointNoticed noticed = Noticed();
  noticed.worker = "stranger";
  noticed.notice.mutable_committed()->set_step(1000);
  EXPECT_EQ(driver.Feed(noticed).events.size(), 0U);
  EXPECT_EQ(driver.Job().last_step(), 0);
  noticed.worker = "b";
  EXPECT_EQ(driver.Feed(noticed).events.size(), 1U);
}

CheckpointNoticed Warned(uint64_t number, v1::CheckpointProblem problem, int64_t step) {
  CheckpointNoticed noticed = Noticed(number);
  noticed.notice.mutable_warning()->set_problem(problem);
  noticed.notice.mutable_warning()->set_step(step);
  noticed.notice.mutable_warning()->set_message("no space");
  return noticed;
}

TEST(NoticesTest, TrainingWarningIsOneEvent) {
  Driver driver(v1::JOB_STATE_RUNNING);
  CheckpointNoticed noticed = Noticed(3);
  noticed.notice.mutable_training()->set_step(7);
  noticed.notice.mutable_training()->set_message("model.norm.weight (held by rank 1)");
  EXPECT_EQ(driver.Feed(noticed).events.size(), 1U);
  EXPECT_EQ(driver.Feed(noticed).events.size(), 0U) << "sent again after a lost connection";
  const v1::Event& event = driver.events.back();
  EXPECT_EQ(event.reason(), "NonfiniteGradients");
  EXPECT_EQ(event.message(), "model.norm.weight (held by rank 1)");
  EXPECT_EQ(event.step(), 7);
  EXPECT_EQ(event.to(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(KindOf(event), "training_warning");
  EXPECT_EQ(driver.Job().checkpoints().failed(), 0);
  noticed.notice.set_number(noticed.notice.number() + 1);
  noticed.notice.mutable_training()->set_is_spike(true);
  EXPECT_EQ(driver.Feed(noticed).events.size(), 1U);
  EXPECT_EQ(driver.events.back().reason(), "GradientSpike");
  noticed.notice.set_number(noticed.notice.number() + 1);
  noticed.notice.mutable_training()->set_is_spike(false);
  noticed.notice.mutable_training()->set_is_loss_spike(true);
  EXPECT_EQ(driver.Feed(noticed).events.size(), 1U);
  EXPECT_EQ(driver.events.back().reason(), "LossSpike");
  // One counter for all that a worker reports: what comes after the last number is new.
  driver.Feed(Warned(6, v1::CHECKPOINT_PROBLEM_SAVE_FAILED, 10));
  EXPECT_EQ(driver.events.back().reason(), "CheckpointFailed");
}

TEST(NoticesTest, OfAnAttemptAThousandWarningsAreKept) {
  Driver driver(v1::JOB_STATE_RUNNING);
  const size_t before = driver.events.size();
  for (uint64_t number = 1; number <= 1100; ++number) {
    driver.Feed(Warned(number, v1::CHECKPOINT_PROBLEM_SAVE_FAILED, 1));
  }
  EXPECT_EQ(driver.events.size(), before + 1001);
  EXPECT_EQ(driver.events[driver.events.size() - 2].message(), "no space");
  const std::string last =
      "attempt 1 has warned 1000 times: neither this warning nor later ones of it are kept";
  EXPECT_EQ(driver.events.back().message(), last);
  EXPECT_EQ(driver.events.back().checkpoint_warning().message(), last);
  // Those of a hello, which are decided at once, count too.
  Driver other;
  other.Run(v1::JOB_STATE_RUNNING);
  const size_t none = other.events.size();
  for (uint64_t begin = 1; begin < 1200; begin += 60) {
    v1::Hello hello = HelloOf("a", 1);
    for (uint64_t number = begin; number < begin + 60; ++number) {
      *hello.mutable_inventory()->add_notices() =
          Warned(number, v1::CHECKPOINT_PROBLEM_SAVE_FAILED, 1).notice;
    }
    v1::AttemptStatus& status = *hello.mutable_inventory()->add_attempts();
    status = StatusOf("id-job");
    AddRank(status, 0, v1::RANK_PHASE_STEPPING);
    other.Feed(WorkerHello{.session = absl::StrCat("s", begin), .hello = hello});
  }
  const auto warnings = std::count_if(other.events.begin() + static_cast<int64_t>(none), other.events.end(),
                                      [](const v1::Event& event) { return event.has_checkpoint_warning(); });
  EXPECT_EQ(warnings, 1001);
}

TEST(NoticesTest, ACheckpointBeyondTheLastStepIsNone) {
  Driver driver(v1::JOB_STATE_RUNNING);
  CheckpointNoticed noticed = Noticed(1);
  noticed.notice.mutable_committed()->set_step(driver.Job().resolved().training().steps() + 1);
  EXPECT_EQ(driver.Feed(noticed).events.size(), 0U);
  noticed.notice.mutable_committed()->set_step(driver.Job().resolved().training().steps());
  EXPECT_EQ(driver.Feed(noticed).events.size(), 1U);
}

TEST(NoticesTest, DataReadIsKeptAndOneEvent) {
  Driver driver(v1::JOB_STATE_RUNNING);
  CheckpointNoticed noticed = Noticed(3);
  noticed.notice.mutable_training()->set_message("2 files; held out: b");
  noticed.notice.mutable_training()->set_is_data(true);
  EXPECT_EQ(driver.Feed(noticed).events.size(), 1U);
  EXPECT_EQ(driver.events.back().reason(), "DataRead");
  EXPECT_EQ(driver.Job().data(), "2 files; held out: b");
  noticed.notice.set_number(4);
  EXPECT_EQ(driver.Feed(noticed).events.size(), 0U);
}

TEST(NoticesTest, FailedSavesAreEventsAndCounted) {
  Driver driver(v1::JOB_STATE_RUNNING);
  for (const uint64_t number : {1, 2, 2, 1}) {  // sent again after a lost connection
    driver.Feed(Warned(number, v1::CHECKPOINT_PROBLEM_SAVE_FAILED, 10 * static_cast<int64_t>(number)));
  }
  EXPECT_EQ(driver.events.back().reason(), "CheckpointFailed");
  EXPECT_EQ(driver.events.back().message(), "no space");
  EXPECT_EQ(driver.events.back().step(), 20);
  EXPECT_EQ(driver.events.back().actor(), "a");
  EXPECT_EQ(driver.Job().checkpoints().failed(), 2);
  EXPECT_EQ(driver.Job().checkpoints().failed_in_a_row(), 2);
  EXPECT_EQ(driver.Job().checkpoints().last_failure().step(), 20);
  EXPECT_EQ(driver.StateAndReason(), "RUNNING Ready") << "a warning is not a transition";

  CheckpointNoticed saved = Noticed(3);
  saved.notice.mutable_committed()->set_step(30);
  saved.notice.mutable_committed()->set_bytes(7);
  saved.notice.mutable_committed()->set_seconds(0.5);
  driver.Feed(saved);
  EXPECT_EQ(driver.Job().checkpoints().saved(), 1);
  EXPECT_EQ(driver.Job().checkpoints().failed(), 2);
  EXPECT_EQ(driver.Job().checkpoints().failed_in_a_row(), 0);
  EXPECT_EQ(driver.Job().checkpoints().last_step(), 30);
  EXPECT_EQ(driver.Job().checkpoints().bytes(), 7);
  EXPECT_EQ(proto::FromProto(driver.Job().checkpoints().last_saved()), driver.now);
}

TEST(NoticesTest, WarningsOfAResumeStayAndAreBounded) {
  Driver driver(v1::JOB_STATE_STARTING);
  for (uint64_t number = 1; number <= 12; ++number) {
    driver.Feed(Warned(number, v1::CHECKPOINT_PROBLEM_PASSED_OVER, 100 - static_cast<int64_t>(number)));
  }
  EXPECT_EQ(driver.events.back().reason(), "CheckpointPassedOver");
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_STARTING);
  ASSERT_EQ(driver.Job().checkpoints().resume_size(), 9);
  EXPECT_EQ(driver.Job().checkpoints().resume(0).step(), 99);
  EXPECT_EQ(driver.Job().checkpoints().failed(), 0);
  EXPECT_EQ(driver.Job().last_step(), 0);
}

TEST(NoticesTest, DifferencesAtAResumeStayWithTheJob) {
  Driver driver(v1::JOB_STATE_STARTING);
  driver.Feed(Warned(1, v1::CHECKPOINT_PROBLEM_OTHER_TRAINING, 100));
  EXPECT_EQ(driver.events.back().reason(), "ResumedWithOtherTraining");
  driver.Feed(Warned(2, v1::CHECKPOINT_PROBLEM_OTHER_SEED, 100));
  EXPECT_EQ(driver.events.back().reason(), "ResumedWithOtherSeed");
  driver.Feed(Warned(3, v1::CHECKPOINT_PROBLEM_OTHER_DATA, 100));
  EXPECT_EQ(driver.events.back().reason(), "ResumedWithOtherData");
  EXPECT_EQ(driver.Job().checkpoints().resume_size(), 3);
}

}  // namespace
}  // namespace tandem::controller
