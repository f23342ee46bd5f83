// SPDX-License-Identifier: Apache-2.0
#include "controller/core/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "controller/core/assignments.h"
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
  Driver driver(v1::JOB_STATE_RUNNING);
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
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Feed(SubmitOf("second", 1));
  v1::CheckpointNotice notice = Noticed().notice;
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
  Driver driver(v1::JOB_STATE_RUNNING);
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

TEST(DecideTest, JobBeyondCapacityBlocksNoOther) {
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

TEST(DecideTest, JobThatFitsLaterBlocksOthers) {
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

TEST(DecideTest, JobBeyondCapacityStartsOnceWorkersJoin) {
  Driver driver;
  driver.Connect("a", 2);
  driver.Feed(SubmitOf("large", 4));
  driver.Wait(driver.state.limits.worker_timeout);
  EXPECT_EQ(driver.Job("id-large").reason(), "BeyondCapacity");
  driver.Connect("b", 2);
  EXPECT_EQ(driver.Job("id-large").state(), v1::JOB_STATE_ADMITTED);
}

TEST(DecideTest, RepeatedPhasesAreNoNews) {
  Driver driver(v1::JOB_STATE_RUNNING);
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

TEST(DecideTest, ADrainingWorkerGetsNoRanks) {
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

TEST(DecideTest, WorkerMayReportAThousandExtraAttempts) {
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
  Driver driver(v1::JOB_STATE_RUNNING);
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

}  // namespace
}  // namespace tandem::controller
