// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "controller/core/progress.h"
#include "tests/controller/job_builder.h"

namespace tandem::controller {
namespace {

google::protobuf::Timestamp At(int64_t second) { return proto::ToProto(kStart + absl::Seconds(second)); }

// Submitted at 0, placed at 10, ready at 30.
v1::Job Running() {
  v1::Job job;
  job.set_state(v1::JOB_STATE_RUNNING);
  *job.mutable_created() = At(0);
  v1::Attempt& attempt = *job.add_attempts();
  *attempt.mutable_started() = At(10);
  *attempt.mutable_ready() = At(30);
  job.mutable_checkpoints()->set_seconds(5);
  return job;
}

double Sum(const v1::TimeAccount& time) {
  return time.waiting() + time.starting() + time.stepping() + time.checkpoints() + time.lost() + time.other();
}

TEST(TimeAccountTest, PartsSumToTheTotal) {
  const v1::TimeAccount time =
      AccountTime(Running(), {.steps = 50, .seconds = 60}, kStart + absl::Seconds(100));
  EXPECT_DOUBLE_EQ(time.total(), 100);
  EXPECT_DOUBLE_EQ(time.waiting(), 10);
  EXPECT_DOUBLE_EQ(time.starting(), 20);
  EXPECT_DOUBLE_EQ(time.stepping(), 60);
  EXPECT_DOUBLE_EQ(time.checkpoints(), 5);
  EXPECT_DOUBLE_EQ(time.lost(), 0);
  EXPECT_DOUBLE_EQ(time.other(), 5);
}

TEST(TimeAccountTest, OfASaveOnlyTheStandstillCounts) {
  v1::Job job = Running();
  job.mutable_checkpoints()->set_stall_seconds(2);
  const v1::TimeAccount time = AccountTime(job, {.steps = 50, .seconds = 60}, kStart + absl::Seconds(100));
  EXPECT_DOUBLE_EQ(time.checkpoints(), 2);
  EXPECT_DOUBLE_EQ(time.other(), 8);
}

TEST(TimeAccountTest, AJobThatWaitsHasOnlyWaited) {
  v1::Job job;
  job.set_state(v1::JOB_STATE_QUEUED);
  *job.mutable_created() = At(0);
  const v1::TimeAccount time = AccountTime(job, {}, kStart + absl::Seconds(7));
  EXPECT_DOUBLE_EQ(time.waiting(), 7);
  EXPECT_DOUBLE_EQ(Sum(time), 7);
}

TEST(TimeAccountTest, StepsAfterTheNewestCheckpointAreLost) {
  v1::Job job = Running();
  job.set_state(v1::JOB_STATE_FAILED);
  job.set_last_step(50);
  job.mutable_checkpoints()->set_last_step(40);
  *job.mutable_ended() = At(100);
  *job.mutable_attempts(0)->mutable_ended() = At(100);
  const v1::TimeAccount time = AccountTime(job, {.steps = 50, .seconds = 60}, kStart + absl::Seconds(500));
  EXPECT_DOUBLE_EQ(time.total(), 100);
  EXPECT_DOUBLE_EQ(time.lost(), 12);
  EXPECT_DOUBLE_EQ(time.stepping(), 48);
  EXPECT_DOUBLE_EQ(Sum(time), 100);
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  EXPECT_DOUBLE_EQ(AccountTime(job, {.steps = 50, .seconds = 60}, kStart).lost(), 0);
}

TEST(TimeAccountTest, PreemptedJobThatSavedLostNothing) {
  v1::Job job = Running();
  job.set_state(v1::JOB_STATE_FAILED);
  job.set_reason("Preempted");
  job.set_last_step(50);
  job.mutable_checkpoints()->set_last_step(50);
  *job.mutable_ended() = At(100);
  *job.mutable_attempts(0)->mutable_ended() = At(100);
  EXPECT_DOUBLE_EQ(AccountTime(job, {.steps = 50, .seconds = 60}, kStart).lost(), 0);
  EXPECT_DOUBLE_EQ(AccountTime(job, {.steps = 50, .seconds = 60}, kStart).stepping(), 60);
}

TEST(TimeAccountTest, ResumedJobLosesOnlyItsOwnSteps) {
  v1::Job job = Running();
  job.set_state(v1::JOB_STATE_FAILED);
  job.set_last_step(50);
  job.mutable_attempts(0)->set_resumed_step(30);
  *job.mutable_ended() = At(100);
  *job.mutable_attempts(0)->mutable_ended() = At(100);
  const v1::TimeAccount time = AccountTime(job, {.steps = 20, .seconds = 60}, kStart);
  EXPECT_DOUBLE_EQ(time.lost(), 60);
  EXPECT_DOUBLE_EQ(time.stepping(), 0);
  EXPECT_DOUBLE_EQ(Sum(time), 100);
}

TEST(TimeAccountTest, NoPartIsNegativeWhateverTheClocks) {
  const v1::TimeAccount time =
      AccountTime(Running(), {.steps = 50, .seconds = 600}, kStart + absl::Seconds(100));
  EXPECT_DOUBLE_EQ(time.stepping(), 70);
  EXPECT_GE(time.checkpoints(), 0);
  EXPECT_GE(time.other(), 0);
  EXPECT_DOUBLE_EQ(Sum(time), 100);
}

}  // namespace
}  // namespace tandem::controller
