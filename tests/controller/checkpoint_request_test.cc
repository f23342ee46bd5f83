// SPDX-License-Identifier: Apache-2.0
// Checkpoints on request, and an end after one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/core/assignments.h"
#include "controller/core/checkpoints.h"
#include "tests/controller/job_builder.h"

namespace tandem::controller {
namespace {

using ::testing::HasSubstr;

class CheckpointRequestTest : public ::testing::Test {
 protected:
  // Two workers of one slot, a job of two ranks that saves in a folder, running.
  void RunJob(const std::string& directory = "/runs/job") {
    driver_.Connect("a", 1);
    driver_.Connect("b", 1);
    Submit submit = SubmitOf("job", 2);
    submit.resolved.mutable_checkpoint()->set_directory(directory);
    driver_.Feed(submit);
    for (const v1::RankPhase phase : {v1::RANK_PHASE_SPAWNED, v1::RANK_PHASE_READY}) {
      driver_.SayAll("a", "id-job", phase);
      driver_.SayAll("b", "id-job", phase);
    }
    ASSERT_EQ(driver_.Job().state(), v1::JOB_STATE_RUNNING);
  }
  Decision Ask() { return driver_.Feed(AskCheckpoint{.job = "job", .actor = "local"}); }
  Decision CancelAfterCheckpoint() {
    return driver_.Feed(
        Cancel{.job = "job", .reason = "CancelledByUser", .actor = "local", .checkpoint = true});
  }
  v1::Assignment AssignmentOf(const std::string& worker) {
    return AssignmentsFor(driver_.state, worker).all(0);
  }
  void Answer(const std::string& worker, uint64_t request, const std::string& error) {
    v1::AttemptStatus status = StatusOf("id-job");
    AddRank(status, worker == "a" ? 0 : 1, v1::RANK_PHASE_STEPPING);
    status.set_request_done(request);
    status.set_request_error(error);
    driver_.Say(worker, status);
  }
  // A rank leaves after the checkpoint that the job's end waits for.
  void Leave(const std::string& worker, v1::FailureClass as) {
    v1::AttemptStatus status = Failed(worker == "a" ? 0 : 1, CauseOf(as, "Preempted"));
    driver_.Say(worker, status);
  }

  Driver driver_;
};

TEST_F(CheckpointRequestTest, GoesToRankZerosWorkerUntilAnswered) {
  RunJob();
  ASSERT_TRUE(Ask().status.ok());
  const int64_t request = driver_.Job().checkpoints().requested();
  EXPECT_GT(request, 0);
  EXPECT_EQ(driver_.Job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(driver_.Job().reason(), "Ready");
  EXPECT_EQ(AssignmentOf("a").desired(), v1::DESIRED_CHECKPOINT_AND_GO_ON);
  EXPECT_EQ(AssignmentOf("a").request(), static_cast<uint64_t>(request));
  EXPECT_EQ(AssignmentOf("b").desired(), v1::DESIRED_RUN);

  Answer("a", static_cast<uint64_t>(request) - 1, "");  // an older one
  EXPECT_EQ(driver_.Job().checkpoints().answered(), 0);
  Answer("a", static_cast<uint64_t>(request), "");
  EXPECT_EQ(driver_.Job().checkpoints().answered(), request);
  EXPECT_EQ(driver_.Job().checkpoints().answer_error(), "");
  EXPECT_EQ(AssignmentOf("a").desired(), v1::DESIRED_RUN);
  EXPECT_EQ(driver_.events.back().reason(), "CheckpointDone");
  const size_t events = driver_.events.size();
  Answer("a", static_cast<uint64_t>(request), "");
  EXPECT_EQ(driver_.events.size(), events) << "answered once";
}

TEST_F(CheckpointRequestTest, TwoThatComeTogetherAreOne) {
  RunJob();
  Ask();
  const int64_t request = driver_.Job().checkpoints().requested();
  ASSERT_TRUE(Ask().status.ok());
  EXPECT_EQ(driver_.Job().checkpoints().requested(), request);
  Answer("a", static_cast<uint64_t>(request), "");
  Ask();
  EXPECT_GT(driver_.Job().checkpoints().requested(), request);
}

TEST_F(CheckpointRequestTest, FailedRequestIsKeptAndTheJobContinues) {
  RunJob();
  Ask();
  Answer("a", static_cast<uint64_t>(driver_.Job().checkpoints().requested()), "No space left on device");
  EXPECT_EQ(driver_.Job().checkpoints().answer_error(), "No space left on device");
  EXPECT_EQ(driver_.events.back().reason(), "CheckpointNotDone");
  EXPECT_EQ(driver_.Job().state(), v1::JOB_STATE_RUNNING);
}

TEST_F(CheckpointRequestTest, NeedsAFolderAndARunningJob) {
  RunJob("");
  EXPECT_TRUE(absl::IsFailedPrecondition(Ask().status));
  EXPECT_THAT(Ask().status.message(), HasSubstr("checkpoint.directory"));
  EXPECT_TRUE(absl::IsFailedPrecondition(CancelAfterCheckpoint().status));
  EXPECT_EQ(driver_.Job().state(), v1::JOB_STATE_RUNNING);
  driver_.Feed(SubmitOf("second", 1));
  EXPECT_THAT(driver_.Feed(AskCheckpoint{.job = "second", .actor = "local"}).status.message(),
              HasSubstr("is not running: QUEUED"));
  EXPECT_TRUE(absl::IsNotFound(driver_.Feed(AskCheckpoint{.job = "third", .actor = "local"}).status));
}

TEST_F(CheckpointRequestTest, CancelWithOneEndsWhenTheRanksLeave) {
  for (const v1::FailureClass as : {v1::FAILURE_CLASS_REQUESTED, v1::FAILURE_CLASS_PREEMPTED}) {
    driver_ = Driver();
    RunJob();
    ASSERT_TRUE(CancelAfterCheckpoint().status.ok());
    EXPECT_EQ(driver_.Job().state(), v1::JOB_STATE_RUNNING);
    for (const char* worker : {"a", "b"}) {
      EXPECT_EQ(AssignmentOf(worker).desired(), v1::DESIRED_STOP_AFTER_CHECKPOINT);
      EXPECT_EQ(AssignmentOf(worker).reason(), "CancelledByUser");
    }
    Leave("a", as);
    EXPECT_EQ(driver_.Job().state(), v1::JOB_STATE_STOPPING);
    Leave("b", as);
    EXPECT_EQ(driver_.Job().state(), v1::JOB_STATE_CANCELLED);
    EXPECT_EQ(driver_.Job().reason(), "CancelledByUser");
  }
}

TEST_F(CheckpointRequestTest, RankKilledMeanwhileFailsTheJob) {
  RunJob();
  CancelAfterCheckpoint();
  driver_.Say("a", Failed(0, CauseOf(v1::FAILURE_CLASS_INFRASTRUCTURE, "RankKilled", 9)));
  EXPECT_EQ(driver_.Job().outcome(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(driver_.Job().reason(), "RankKilled");
}

TEST_F(CheckpointRequestTest, ASecondCancelDoesNotWaitForIt) {
  RunJob();
  CancelAfterCheckpoint();
  driver_.Feed(Cancel{.job = "job", .reason = "CancelledByUser", .actor = "local"});
  EXPECT_EQ(driver_.Job().state(), v1::JOB_STATE_STOPPING);
  EXPECT_EQ(AssignmentOf("a").desired(), v1::DESIRED_STOP_NOW);
}

TEST_F(CheckpointRequestTest, WithoutTrainedStepsItIsAPlainCancel) {
  driver_.Feed(SubmitOf("job", 2));
  ASSERT_TRUE(CancelAfterCheckpoint().status.ok());
  EXPECT_EQ(driver_.Job().state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(CheckpointRequestTest, SurvivesTheController) {
  RunJob();
  Ask();
  // What a restart loads: rows, and what workers say again.
  EXPECT_EQ(driver_.state.jobs.at("id-job").runtime.checkpoint_wanted().request(),
            driver_.Job().checkpoints().requested());
  State folded;
  for (const v1::Event& event : driver_.events) {
    Apply(event, folded);
  }
  EXPECT_EQ(folded.jobs.at("id-job").runtime.SerializeAsString(),
            driver_.state.jobs.at("id-job").runtime.SerializeAsString());
  EXPECT_EQ(folded.jobs.at("id-job").job.SerializeAsString(), driver_.Job().SerializeAsString());
}

}  // namespace
}  // namespace tandem::controller
