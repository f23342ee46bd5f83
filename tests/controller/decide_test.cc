// SPDX-License-Identifier: Apache-2.0
#include "controller/core/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "controller/core/assignments.h"
#include "controller/core/rendezvous.h"
#include "proto/names.h"
#include "proto/time.h"
#include "tests/controller/job_builder.h"

namespace tandem::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> StatesOf(const Driver& driver, const std::string& id) {
  std::vector<std::string> out;
  for (const v1::Event& event : driver.events) {
    if (event.job_id() == id && event.from() != event.to()) {
      out.push_back(proto::ValueName(event.to()));
    }
  }
  return out;
}

TEST(DecideTest, AJobGoesFromQueuedToSucceeded) {
  Driver driver;
  driver.Run(v1::JOB_STATE_RUNNING);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Current(driver.Job()).program_digest(), "program");
  driver.SayAll("a", "id-job", v1::RANK_PHASE_FINISHED);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING) << "rank 1 has not finished";
  driver.SayAll("b", "id-job", v1::RANK_PHASE_FINISHED);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_STOPPING);
  EXPECT_EQ(driver.Job().outcome(), v1::JOB_STATE_SUCCEEDED);
  driver.SayAll("a", "id-job", v1::RANK_PHASE_EXITED);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_STOPPING) << "rank 1 has not exited";
  driver.SayAll("b", "id-job", v1::RANK_PHASE_EXITED);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(StatesOf(driver, "id-job"),
              ElementsAre("QUEUED", "ADMITTED", "STARTING", "RUNNING", "STOPPING", "SUCCEEDED"));
  EXPECT_TRUE(driver.Job().has_ended());
}

TEST(DecideTest, FoldingTheLogGivesTheRows) {
  Driver driver;
  driver.Run(v1::JOB_STATE_RUNNING);
  driver.Feed(SubmitOf("second", 1));
  v1::CheckpointNotice notice;
  notice.mutable_id()->set_job_id("id-job");
  notice.mutable_id()->set_attempt(1);
  notice.mutable_committed()->set_step(10);
  driver.Feed(CheckpointNoticed{.worker = "a", .notice = notice});
  notice.set_number(2);
  notice.clear_committed();
  notice.mutable_warning()->set_problem(v1::CHECKPOINT_PROBLEM_SAVE_FAILED);
  driver.Feed(CheckpointNoticed{.worker = "a", .notice = notice});
  v1::AttemptStatus status = StatusOf("id-job");
  v1::RankStatus& rank = AddRank(status, 0, v1::RANK_PHASE_STEPPING);
  rank.set_step(12);
  *rank.mutable_cause() = CauseOf(v1::FAILURE_CLASS_INFRASTRUCTURE, "RankKilled", SIGKILL);
  driver.Say("a", status);
  driver.Wait(absl::Seconds(40));

  State folded;
  for (const v1::Event& event : driver.events) {
    Apply(event, folded);
  }
  ASSERT_EQ(folded.jobs.size(), driver.state.jobs.size());
  for (const auto& [id, entry] : driver.state.jobs) {
    EXPECT_EQ(folded.jobs.at(id).job.SerializeAsString(), entry.job.SerializeAsString()) << id;
    EXPECT_EQ(folded.jobs.at(id).runtime.SerializeAsString(), entry.runtime.SerializeAsString()) << id;
  }
  EXPECT_EQ(folded.jobs.queue(), driver.state.jobs.queue());
  EXPECT_EQ(folded.last_seq, driver.state.last_seq);
}

TEST(DecideTest, DecideIsPureAndDeterministic) {
  Driver driver;
  driver.Run(v1::JOB_STATE_RUNNING);
  const Decision first = Decide(driver.state, Cancel{.job = "job", .reason = "R", .actor = "x"}, driver.now);
  const Decision again = Decide(driver.state, Cancel{.job = "job", .reason = "R", .actor = "x"}, driver.now);
  ASSERT_EQ(first.events.size(), 1U);
  EXPECT_EQ(first.events[0].SerializeAsString(), again.events[0].SerializeAsString());
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING);
}

TEST(DecideTest, AWaitingJobSaysWhatItWaitsFor) {
  Driver driver;
  driver.Feed(SubmitOf("job", 4));
  EXPECT_EQ(driver.Job().reason(), "NoWorkers");
  EXPECT_EQ(driver.Job().message(),
            "needs 4 slots, and no worker is connected; start tandem-worker, or see in its log why it is not "
            "connected");
  driver.Connect("a", 2);
  EXPECT_EQ(driver.Job().reason(), "WaitingForSlots");
  EXPECT_EQ(driver.Job().message(), "needs 4 slots, 2 free of 2 on 1 worker");
  driver.Feed(SubmitOf("small", 1));
  EXPECT_EQ(driver.Job("id-small").reason(), "BehindOthers")
      << "first in, first out: small jobs do not overtake";
  driver.Connect("b", 2);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(driver.Job("id-small").message(), "needs 1 slot, 0 free of 4 on 2 workers");
}

TEST(DecideTest, AJobBeyondAllCapacityHoldsUpNoOther) {
  Driver driver;
  driver.Connect("a", 2);
  driver.Connect("b", 2);
  driver.Feed(SubmitOf("huge", 16384));
  driver.Feed(SubmitOf("small", 1));
  EXPECT_EQ(driver.Job("id-small").reason(), "BehindOthers") << "other workers may still be about to return";
  driver.Disconnect("b");  // it counts, as it may return
  driver.Wait(driver.state.limits.worker_timeout);
  EXPECT_EQ(driver.Job("id-small").state(), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(driver.Job("id-huge").reason(), "BeyondCapacity");
  EXPECT_THAT(driver.Job("id-huge").message(), HasSubstr("needs 16384 slots at a time, and all workers that "
                                                         "have registered have 4 that suit it"));
  const size_t events = driver.events.size();
  driver.Wait(absl::Seconds(1));
  EXPECT_EQ(driver.events.size(), events) << "it says so once";
}

TEST(DecideTest, AJobThatOnlyHasToWaitHoldsUpTheOthers) {
  Driver driver;
  driver.Connect("a", 2);
  driver.Connect("b", 2);
  driver.Feed(SubmitOf("runs", 3));
  driver.Feed(SubmitOf("all", 4));
  driver.Feed(SubmitOf("small", 1));
  driver.Wait(driver.state.limits.worker_timeout);
  EXPECT_EQ(driver.Job("id-all").reason(), "WaitingForSlots");
  EXPECT_EQ(driver.Job("id-small").reason(), "BehindOthers");
}

TEST(DecideTest, AJobBeyondCapacityStartsWhenEnoughWorkersJoin) {
  Driver driver;
  driver.Connect("a", 2);
  driver.Feed(SubmitOf("large", 4));
  driver.Wait(driver.state.limits.worker_timeout);
  EXPECT_EQ(driver.Job("id-large").reason(), "BeyondCapacity");
  driver.Connect("b", 2);
  EXPECT_EQ(driver.Job("id-large").state(), v1::JOB_STATE_ADMITTED);
}

TEST(DecideTest, AReportThatRepeatsThePhasesIsNoNews) {
  Driver driver;
  driver.Run(v1::JOB_STATE_RUNNING);
  v1::AttemptStatus status = *StatusOf(driver.state, "a", KeyOf(StatusOf("id-job").id()));
  status.mutable_ranks(0)->set_step(100);
  status.mutable_ranks(0)->mutable_since_progress()->set_nanos(5);
  EXPECT_FALSE(IsNews(driver.state, {.worker = "a", .status = status}));
  EXPECT_FALSE(MayChangeAssignments(driver.state, {.worker = "a", .status = status}));
  driver.Say("a", status);
  EXPECT_EQ(StatusOf(driver.state, "a", KeyOf(status.id()))->ranks(0).step(), 100)
      << "it is kept all the same";
  v1::AttemptStatus other = status;
  other.mutable_ranks(0)->set_finished(true);
  EXPECT_TRUE(IsNews(driver.state, {.worker = "a", .status = other}));
  other = status;
  other.mutable_ranks(0)->mutable_cause()->set_reason("RankKilled");
  EXPECT_TRUE(IsNews(driver.state, {.worker = "a", .status = other}));
  other = status;
  other.set_request_done(1);
  EXPECT_TRUE(IsNews(driver.state, {.worker = "a", .status = other}));
  other = status;
  other.set_ended(true);
  EXPECT_TRUE(IsNews(driver.state, {.worker = "a", .status = other}));
  EXPECT_TRUE(MayChangeAssignments(driver.state, {.worker = "a", .status = other}));
}

TEST(DecideTest, AWorkerThatIsAskedToEndGetsNoRanksUntilItIsStartedAgain) {
  Driver driver;
  driver.Connect("a", 2);
  driver.Feed(WorkerDraining{.worker = "a"});
  driver.Feed(SubmitOf("job", 1));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Describe(driver.state, "a").reason(), "Draining");
  driver.Connect("a", 2);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_ADMITTED);
}

TEST(DecideTest, TheSameRequestIdGivesTheSameJob) {
  Driver driver;
  EXPECT_TRUE(driver.Feed(SubmitOf("job", 1, "r1")).status.ok());
  Submit again = SubmitOf("job", 1, "r1");
  again.id = "another-id";
  const Decision same = driver.Feed(again);
  EXPECT_TRUE(same.status.ok());
  EXPECT_EQ(same.job_id, "id-job");
  EXPECT_TRUE(same.events.empty());
  again.submitted.mutable_training()->set_steps(7);
  EXPECT_TRUE(absl::IsAlreadyExists(driver.Feed(again).status));
  again.owner = "somebody else";
  again.submitted.set_name("other");
  again.resolved.set_name("other");
  EXPECT_TRUE(driver.Feed(again).status.ok()) << "request ids are per owner";
}

TEST(DecideTest, NamesAreUniqueAmongLiveJobsOnly) {
  Driver driver;
  driver.Feed(SubmitOf("job", 1));
  Submit second = SubmitOf("job", 1);
  second.id = "second";
  EXPECT_TRUE(absl::IsAlreadyExists(driver.Feed(second).status));
  driver.Feed(Cancel{.job = "job", .reason = "CancelledByUser", .actor = "local"});
  EXPECT_TRUE(driver.Feed(second).status.ok());
}

TEST(DecideTest, ACheckpointDirectoryBelongsToOneLiveJob) {
  Driver driver;
  Submit first = SubmitOf("first", 1);
  first.resolved.mutable_checkpoint()->set_directory("/runs/a");
  driver.Feed(first);
  Submit second = SubmitOf("second", 1);
  second.resolved.mutable_checkpoint()->set_directory("/runs/../runs/a/");
  const Decision refused = driver.Feed(second);
  EXPECT_TRUE(absl::IsAlreadyExists(refused.status));
  EXPECT_EQ(refused.status.message(),
            "checkpoint.directory: job id-first saves in /runs/../runs/a/ and is QUEUED; cancel it or choose "
            "another directory");
  EXPECT_TRUE(refused.events.empty());
  Submit elsewhere = SubmitOf("elsewhere", 1);
  elsewhere.resolved.mutable_checkpoint()->set_directory("/runs/b");
  EXPECT_TRUE(driver.Feed(elsewhere).status.ok());
  driver.Feed(Cancel{.job = "first", .reason = "CancelledByUser", .actor = "local"});
  EXPECT_TRUE(driver.Feed(second).status.ok());
}

TEST(DecideTest, AFullQueueRefuses) {
  Driver driver;
  driver.state.limits.live_jobs = 1;
  driver.Feed(SubmitOf("one", 1));
  EXPECT_TRUE(absl::IsResourceExhausted(driver.Feed(SubmitOf("two", 1)).status));
}

TEST(DecideTest, CheckpointsAreReportedOnce) {
  Driver driver;
  driver.Run(v1::JOB_STATE_RUNNING);
  v1::CheckpointNotice notice;
  notice.mutable_id()->set_job_id("id-job");
  notice.mutable_id()->set_attempt(1);
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

TEST(DecideTest, OnlyAWorkerOfTheAttemptReportsItsCheckpoints) {
  Driver driver;
  driver.Run(v1::JOB_STATE_RUNNING);
  driver.Connect("stranger", 1);
  CheckpointNoticed noticed{.worker = "stranger"};
  noticed.notice.mutable_id()->set_job_id("id-job");
  noticed.notice.mutable_id()->set_attempt(1);
  noticed.notice.mutable_committed()->set_step(1000);
  EXPECT_EQ(driver.Feed(noticed).events.size(), 0U);
  EXPECT_EQ(driver.Job().last_step(), 0);
  noticed.worker = "b";
  EXPECT_EQ(driver.Feed(noticed).events.size(), 1U);
}

CheckpointNoticed Noticed(uint64_t number) {
  CheckpointNoticed noticed{.worker = "a"};
  noticed.notice.mutable_id()->set_job_id("id-job");
  noticed.notice.mutable_id()->set_attempt(1);
  noticed.notice.set_number(number);
  return noticed;
}

CheckpointNoticed Warned(uint64_t number, v1::CheckpointProblem problem, int64_t step) {
  CheckpointNoticed noticed = Noticed(number);
  noticed.notice.mutable_warning()->set_problem(problem);
  noticed.notice.mutable_warning()->set_step(step);
  noticed.notice.mutable_warning()->set_message("no space");
  return noticed;
}

TEST(DecideTest, AWarningAboutTheTrainingIsAnEventOnce) {
  Driver driver;
  driver.Run(v1::JOB_STATE_RUNNING);
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
  // One counter for all that a worker reports: what comes after the last number is new.
  driver.Feed(Warned(4, v1::CHECKPOINT_PROBLEM_SAVE_FAILED, 10));
  EXPECT_EQ(driver.events.back().reason(), "CheckpointFailed");
}

TEST(DecideTest, OfAnAttemptAThousandWarningsAreKept) {
  Driver driver;
  driver.Run(v1::JOB_STATE_RUNNING);
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

TEST(DecideTest, ACheckpointBeyondTheLastStepIsNone) {
  Driver driver;
  driver.Run(v1::JOB_STATE_RUNNING);
  CheckpointNoticed noticed = Noticed(1);
  noticed.notice.mutable_committed()->set_step(driver.Job().resolved().training().steps() + 1);
  EXPECT_EQ(driver.Feed(noticed).events.size(), 0U);
  noticed.notice.mutable_committed()->set_step(driver.Job().resolved().training().steps());
  EXPECT_EQ(driver.Feed(noticed).events.size(), 1U);
}

TEST(DecideTest, WhatAJobTrainsOnIsKeptAndSaidOnce) {
  Driver driver;
  driver.Run(v1::JOB_STATE_RUNNING);
  CheckpointNoticed noticed = Noticed(3);
  noticed.notice.mutable_training()->set_message("2 files; held out: b");
  noticed.notice.mutable_training()->set_is_data(true);
  EXPECT_EQ(driver.Feed(noticed).events.size(), 1U);
  EXPECT_EQ(driver.events.back().reason(), "DataRead");
  EXPECT_EQ(driver.Job().data(), "2 files; held out: b");
  noticed.notice.set_number(4);
  EXPECT_EQ(driver.Feed(noticed).events.size(), 0U);
}

TEST(DecideTest, EverySaveThatFailsIsAnEventAndCounted) {
  Driver driver;
  driver.Run(v1::JOB_STATE_RUNNING);
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
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(driver.Job().reason(), "Ready") << "a warning is not a transition";

  CheckpointNoticed saved{.worker = "a"};
  *saved.notice.mutable_id() = Warned(3, v1::CHECKPOINT_PROBLEM_SAVE_FAILED, 30).notice.id();
  saved.notice.set_number(3);
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

TEST(DecideTest, WhatIsWrongWithAResumeStaysWithTheJobAndIsBounded) {
  Driver driver;
  driver.Run(v1::JOB_STATE_STARTING);
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

TEST(DecideTest, OtherTrainingAtAResumeStaysWithTheJob) {
  Driver driver;
  driver.Run(v1::JOB_STATE_STARTING);
  driver.Feed(Warned(1, v1::CHECKPOINT_PROBLEM_OTHER_TRAINING, 100));
  EXPECT_EQ(driver.events.back().reason(), "ResumedWithOtherTraining");
  ASSERT_EQ(driver.Job().checkpoints().resume_size(), 1);
}

TEST(AssignmentsTest, AssignmentsAreSelfContained) {
  Driver driver;
  driver.Connect("a", 1);
  driver.Connect("b", 1);
  driver.Feed(SubmitOf("job", 2));
  const v1::Assignments wanted = AssignmentsFor(driver.state, "b");
  ASSERT_EQ(wanted.all_size(), 1);
  const v1::Assignment& assignment = wanted.all(0);
  EXPECT_EQ(assignment.desired(), v1::DESIRED_RUN);
  EXPECT_EQ(assignment.slots_size(), 2);
  ASSERT_EQ(assignment.ranks_size(), 1);
  EXPECT_EQ(assignment.ranks(0).rank(), 1);
  EXPECT_EQ(assignment.resolved().resources().device(), v1::DEVICE_CPU);
  EXPECT_GT(assignment.groups_size(), 0);
  EXPECT_GT(assignment.ranks(0).groups_size(), 0);
  for (const int index : assignment.ranks(0).groups()) {
    EXPECT_THAT(assignment.groups(index).ranks(), ::testing::Contains(1));
  }
  EXPECT_EQ(AssignmentsFor(driver.state, "c").all_size(), 0);
}

TEST(AssignmentsTest, EachRankGetsTheGroupsThatItIsIn) {
  Driver driver;
  driver.Connect("a", 2);
  driver.Connect("b", 2);
  Submit submit = SubmitOf("job", 4);
  submit.submitted.mutable_parallelism()->set_replicas(2);
  submit.resolved = jobspec::Resolve(submit.submitted);
  driver.Feed(submit);
  int ranks = 0;
  for (const char* worker : {"a", "b"}) {
    const v1::Assignment assignment = AssignmentsFor(driver.state, worker).all(0);
    for (const v1::RankStart& start : assignment.ranks()) {
      ++ranks;
      std::vector<std::string> names;
      for (const int index : start.groups()) {
        const v1::GroupList& group = assignment.groups(index);
        names.push_back(group.name());
        EXPECT_THAT(group.ranks(), ::testing::Contains(start.rank()));
        if (group.has_clone_of()) {
          EXPECT_THAT(group.ranks(),
                      ::testing::ElementsAreArray(assignment.groups(group.clone_of()).ranks()));
        }
      }
      EXPECT_THAT(names, ElementsAre("dp_cp", "intra_dp_cp", "inter_dp_cp", "dp_cp_ag", "world", "report"));
    }
  }
  EXPECT_EQ(ranks, 4);
}

TEST(AssignmentsTest, AStoredJobWhoseGridDoesNotFitIsAssignedWithoutGroups) {
  Driver driver;
  driver.Connect("a", 2);
  Submit submit = SubmitOf("job", 2);
  submit.resolved.mutable_parallelism()->clear_replicas();  // as a version stored it that had no such field
  driver.Feed(submit);
  const v1::Assignments wanted = AssignmentsFor(driver.state, "a");
  ASSERT_EQ(wanted.all_size(), 1);
  EXPECT_EQ(wanted.all(0).desired(), v1::DESIRED_RUN);
  EXPECT_EQ(wanted.all(0).groups_size(), 0);
  ASSERT_EQ(wanted.all(0).ranks_size(), 2);
  EXPECT_EQ(wanted.all(0).ranks(0).groups_size(), 0);
}

TEST(AssignmentsTest, AStoppingAttemptIsListedWhereItIsKnownAndForgottenWhenItEnded) {
  Driver driver;
  driver.Run(v1::JOB_STATE_RUNNING);
  driver.Feed(Cancel{.job = "job", .reason = "CancelledByUser", .actor = "local"});
  EXPECT_EQ(AssignmentsFor(driver.state, "a").all(0).desired(), v1::DESIRED_STOP_NOW);
  EXPECT_EQ(AssignmentsFor(driver.state, "a").all(0).reason(), "CancelledByUser");
  driver.SayAll("a", "id-job", v1::RANK_PHASE_EXITED);
  EXPECT_EQ(AssignmentsFor(driver.state, "a").forget_size(), 0) << "kept until the end of the job is durable";
  driver.SayAll("b", "id-job", v1::RANK_PHASE_EXITED);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_CANCELLED);
  v1::Assignments wanted = AssignmentsFor(driver.state, "a");
  EXPECT_EQ(wanted.all_size(), 0);
  EXPECT_EQ(wanted.forget_size(), 1);
  MarkForgotten(wanted, "a", driver.state);
  EXPECT_EQ(AssignmentsFor(driver.state, "a").forget_size(), 0);
}

TEST(RendezvousTest, GetIsAnsweredWhenTheKeyIsSetAndTheFirstValueStays) {
  Rendezvous rendezvous;
  v1::KvGet get;
  get.mutable_id()->set_job_id("j");
  get.set_key("k");
  v1::KvValue value;
  EXPECT_FALSE(*rendezvous.Get(get, "b", value));
  v1::KvSet set;
  set.mutable_id()->set_job_id("j");
  set.set_key("k");
  set.set_value("one");
  Rendezvous::Answer answer;
  EXPECT_TRUE(*rendezvous.Set(set, "a", answer));
  EXPECT_THAT(answer.workers, ElementsAre("b"));
  EXPECT_EQ(answer.value.value(), "one");
  set.set_value("two");
  EXPECT_FALSE(*rendezvous.Set(set, "a", answer));
  EXPECT_TRUE(*rendezvous.Get(get, "b", value));
  EXPECT_EQ(value.value(), "one");
  rendezvous.Retain(State());
  EXPECT_FALSE(*rendezvous.Get(get, "b", value)) << "the attempt is over";
}

TEST(DecideTest, AWorkerReportsAttemptsOfItsSlotsAndAThousandMore) {
  Driver driver;
  driver.Connect("a", 1);
  for (int i = 0; i < 1002; ++i) {
    const AttemptReport report{.worker = "a", .status = StatusOf("id-" + std::to_string(i))};
    EXPECT_TRUE(driver.Feed(report).status.ok());
  }
  for (const char* const other : {"more", "and-more"}) {
    const absl::Status refused = driver.Feed(AttemptReport{.worker = "a", .status = StatusOf(other)}).status;
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
    EXPECT_THAT(refused.message(), testing::HasSubstr("it lists all of them when it connects again"));
    EXPECT_EQ(driver.state.workers.at("a").attempts.size(), 1002U);
  }
  EXPECT_TRUE(driver.Feed(AttemptReport{.worker = "a", .status = StatusOf("id-0")}).status.ok());
}

// A worker reports on ranks of other workers, or on other jobs: only its own count, and are kept.
TEST(ObserveTest, AWorkerSpeaksForItsOwnRanksAlone) {
  Driver driver;
  driver.Run(v1::JOB_STATE_RUNNING);
  v1::AttemptStatus status = Failed(1, CauseOf(v1::FAILURE_CLASS_INFRASTRUCTURE, "RankKilled", 9), false);
  AddRank(status, 0, v1::RANK_PHASE_STEPPING);
  AddRank(status, 0, v1::RANK_PHASE_STEPPING);
  driver.Say("a", status);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING) << "rank 1 is b's";
  const AttemptKey key = CurrentAttempt(driver.Job());
  EXPECT_EQ(StatusOf(driver.state, "a", key)->ranks_size(), 1);
  v1::AttemptStatus other = StatusOf("unknown");
  AddRank(other, 0, v1::RANK_PHASE_EXITED).set_whereabouts(std::string(10'000, 'w'));
  other.set_ended(true);
  driver.Say("a", other);
  const v1::AttemptStatus* kept = StatusOf(driver.state, "a", KeyOf(other.id()));
  ASSERT_NE(kept, nullptr);
  EXPECT_LT(kept->ByteSizeLong(), 100U);
  EXPECT_EQ(AssignmentsFor(driver.state, "a").forget_size(), 1) << "it may forget it";
}

TEST(RendezvousTest, ItEndsWhenEveryRankIsReady) {
  Driver driver;
  driver.Connect("a", 1);
  driver.Connect("b", 1);
  driver.Feed(SubmitOf("job", 2));
  driver.SayAll("a", "id-job", v1::RANK_PHASE_READY);
  v1::KvSet set;
  *set.mutable_id() = IdOf(CurrentAttempt(driver.Job()));
  set.set_key("k");
  v1::KvGet get;
  *get.mutable_id() = set.id();
  get.set_key("k");
  Rendezvous rendezvous;
  Rendezvous::Answer answer;
  v1::KvValue value;
  ASSERT_TRUE(rendezvous.Set(set, "a", answer).ok());
  rendezvous.Retain(driver.state);
  EXPECT_TRUE(*rendezvous.Get(get, "b", value));
  EXPECT_FALSE(AssignmentsFor(driver.state, "a").all(0).connected());
  driver.SayAll("b", "id-job", v1::RANK_PHASE_READY);
  ASSERT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING);
  rendezvous.Retain(driver.state);
  EXPECT_FALSE(*rendezvous.Get(get, "b", value));
  EXPECT_TRUE(AssignmentsFor(driver.state, "a").all(0).connected());
}

// Until there is no room for more; each is of 1 MiB.
class FilledRendezvousTest : public ::testing::Test {
 protected:
  absl::Status Wait(const std::string& worker, int number) {
    v1::KvGet get;
    get.mutable_id()->set_job_id("j");
    get.set_key(Key(number));
    v1::KvValue value;
    return rendezvous_.Get(get, worker, value).status();
  }
  absl::Status Set(const std::string& worker, int number) {
    v1::KvSet set;
    set.mutable_id()->set_job_id("j");
    set.set_key(Key(number));
    Rendezvous::Answer answer;
    return rendezvous_.Set(set, worker, answer).status();
  }
  // How many keys from `first` on worker w may wait for, or set.
  int NumWaited(int first) {
    return NumTaken(first, [this](int number) { return Wait("w", number); });
  }
  int NumSet(int first) {
    return NumTaken(first, [this](int number) { return Set("w", number); });
  }

  Rendezvous rendezvous_;

 private:
  static std::string Key(int number) { return std::string(1 << 20, 'k') + std::to_string(number); }

  static int NumTaken(int first, const std::function<absl::Status(int)>& take) {
    for (int number = first; number < first + 100; ++number) {
      const absl::Status status = take(number);
      if (!status.ok()) {
        EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
        EXPECT_THAT(status.message(),
                    HasSubstr("worker w has set and waits for more in the rendezvous of job j (attempt 0) "
                              "than its ranks can need; allowed are 64 MiB"));
        return number - first;
      }
    }
    return -1;
  }
};

TEST_F(FilledRendezvousTest, AWorkerWaitsForSoManyKeysAndOthersDoNotPayForIt) {
  EXPECT_EQ(NumWaited(0), 63);
  EXPECT_TRUE(Wait("w", 0).ok()) << "it waits for that already";
  EXPECT_TRUE(Wait("other", 63).ok());
  EXPECT_TRUE(Set("other", 0).ok());
  EXPECT_TRUE(Wait("w", 64).ok()) << "the answer has made room";
  EXPECT_EQ(NumWaited(100), 0);
  rendezvous_.Forget("w");
  EXPECT_EQ(NumWaited(100), 63);
}

TEST_F(FilledRendezvousTest, AWorkerSetsSoManyValues) {
  EXPECT_EQ(NumSet(0), 63);
  EXPECT_TRUE(Set("w", 0).ok()) << "its worker has said it again";
  rendezvous_.Forget("w");
  EXPECT_EQ(NumSet(100), 0) << "values stay";
  EXPECT_EQ(NumWaited(200), 0);
}

}  // namespace
}  // namespace tandem::controller
