// SPDX-License-Identifier: Apache-2.0
// What the death of a rank means.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <string>
#include <utility>

#include "controller/core/assignments.h"
#include "controller/core/causes.h"
#include "controller/core/decide.h"
#include "proto/names.h"
#include "proto/time.h"
#include "tests/controller/job_builder.h"

namespace tandem::controller {
namespace {

TEST(DeathTest, TheFirstDeadRankStopsTheAttempt) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Say("b", Failed(1, CauseOf(v1::FAILURE_CLASS_INFRASTRUCTURE, "RankKilled", SIGKILL)));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_STOPPING);
  EXPECT_EQ(driver.Job().outcome(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(driver.Job().cause().rank(), 1);
  EXPECT_EQ(driver.Job().cause().worker(), "b");
  EXPECT_EQ(driver.Job().cause().step(), 7);
  EXPECT_EQ(AssignmentsFor(driver.state, "a").all(0).desired(), v1::DESIRED_STOP_NOW);
  driver.SayAll("a", "id-job", v1::RANK_PHASE_EXITED);
  EXPECT_EQ(driver.StateAndReason(), "FAILED RankKilled");
  EXPECT_EQ(driver.Job().attempts(0).cause().signal(), SIGKILL);
  EXPECT_EQ(driver.Job().last_step(), 7);
}

TEST(DeathTest, CausesAreChosenByClassThenTime) {
  const v1::Cause killed = CauseOf(v1::FAILURE_CLASS_INFRASTRUCTURE, "RankKilled", SIGKILL, 9);
  const v1::Cause memory = CauseOf(v1::FAILURE_CLASS_OUT_OF_MEMORY, "OutOfMemory", 0, 8);
  const v1::Cause own = CauseOf(v1::FAILURE_CLASS_USER, "BadData", 0, 3);
  const v1::Cause worker = CauseOf(v1::FAILURE_CLASS_INFRASTRUCTURE, "WorkerLost", 0, 2);
  const v1::Cause stopped = CauseOf(v1::FAILURE_CLASS_INFRASTRUCTURE, "StoppedByWorker", 0, 7);
  v1::Cause crash = CauseOf(v1::FAILURE_CLASS_INFRASTRUCTURE, "RankKilled", SIGSEGV, 1);
  crash.set_after_stop(true);
  const v1::Cause peer = CauseOf(v1::FAILURE_CLASS_PEER_LOST, "PeerLost", 0, 1);
  const v1::Cause requested = CauseOf(v1::FAILURE_CLASS_REQUESTED, "Stopped", 0, 0);
  const std::vector<v1::Cause> order = {memory, killed, own, worker, stopped, crash, peer, requested};
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = 0; j < order.size(); ++j) {
      EXPECT_EQ(Precedes(order[i], order[j]), i < j) << order[i].reason() << " " << order[j].reason();
    }
  }
}

TEST(DeathTest, NearerCauseReplacesAConsequence) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Say("a", Failed(0, CauseOf(v1::FAILURE_CLASS_PEER_LOST, "PeerLost", 0, 1)));
  driver.Wait(driver.state.limits.cause_wait);
  EXPECT_EQ(driver.StateAndReason(), "STOPPING PeerLost");
  driver.Say("b", Failed(1, CauseOf(v1::FAILURE_CLASS_INFRASTRUCTURE, "RankKilled", SIGKILL, 2)));
  EXPECT_EQ(driver.StateAndReason(), "FAILED RankKilled");
  EXPECT_EQ(driver.Job().cause().rank(), 1);
}

// A dead rank's connections break before it can be reaped.
TEST(DeathTest, ALostPeerWaitsForTheRootCause) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Say("a", Failed(0, CauseOf(v1::FAILURE_CLASS_PEER_LOST, "PeerLost", 0, 1)));
  driver.Wait(absl::Milliseconds(10));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING);
  driver.Say("b", Failed(1, CauseOf(v1::FAILURE_CLASS_INFRASTRUCTURE, "RankKilled", SIGSEGV, 2)));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_FAILED);
  for (const v1::Event& event : driver.events) {
    EXPECT_NE(event.reason(), "PeerLost") << event.DebugString();
  }
}

TEST(DeathTest, LostPeerIsTheCauseOnceAllReported) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Say("a", Failed(0, CauseOf(v1::FAILURE_CLASS_PEER_LOST, "PeerLost", 0, 1), /*exited=*/false));
  driver.Say("b", Failed(1, CauseOf(v1::FAILURE_CLASS_PEER_LOST, "PeerLost", 0, 2), /*exited=*/false));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_STOPPING);
  EXPECT_EQ(driver.Job().cause().rank(), 0);
}

// The peers of a worker that ends feel it before the worker has said why.
TEST(DeathTest, ADrainedWorkerIsNamedBeforeItsPeers) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Say("a", Failed(0, CauseOf(v1::FAILURE_CLASS_PEER_LOST, "PeerLost", 0, 1)));
  driver.Wait(driver.state.limits.cause_wait);
  v1::AttemptStatus stopped = Failed(1, CauseOf(v1::FAILURE_CLASS_REQUESTED, "WorkerStopped", 0, 2));
  stopped.mutable_ranks(0)->set_stop_requested(true);
  driver.Say("b", stopped);
  EXPECT_EQ(driver.StateAndReason(), "FAILED StoppedByWorker");
  EXPECT_EQ(driver.Job().cause().worker(), "b");
  EXPECT_EQ(driver.Job().cause().class_(), v1::FAILURE_CLASS_INFRASTRUCTURE);
  EXPECT_THAT(driver.Job().message(), ::testing::HasSubstr("worker b was asked to end"));
}

// The worker's clock is an hour ahead, and the controller hears of the end five minutes late.
TEST(DeathTest, EventsHaveTheTimeOfTheirCause) {
  const auto at = [](double second) {
    return proto::ToProto(kStart + absl::Hours(1) + absl::Seconds(second));
  };
  Driver driver;
  const auto hello = [&] {
    v1::Hello out = HelloOf("a", 1);
    *out.mutable_now() = proto::ToProto(driver.now + absl::Hours(1));
    return out;
  };
  driver.Connect(hello());
  driver.Feed(SubmitOf("job", 1));
  v1::AttemptStatus status = StatusOf("id-job");
  v1::RankStatus& rank = AddRank(status, 0, v1::RANK_PHASE_READY);
  *rank.mutable_ready_at() = at(9);
  driver.now += absl::Seconds(10);
  driver.Say("a", status);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(proto::FromProto(driver.events.back().time()), kStart + absl::Seconds(9));

  driver.Disconnect("a");
  rank.set_exited(true);
  *rank.mutable_exited_at() = at(12);
  *rank.mutable_cause() = CauseOf(v1::FAILURE_CLASS_INFRASTRUCTURE, "RankKilled", SIGKILL);
  *rank.mutable_cause()->mutable_time() = at(11);
  status.set_ended(true);
  driver.state.limits.worker_timeout = absl::Minutes(10);
  driver.now += absl::Minutes(5);
  v1::Hello back = hello();
  *back.mutable_inventory()->add_attempts() = status;
  driver.Connect(back);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(proto::FromProto(driver.Job().cause().time()), kStart + absl::Seconds(11));
  EXPECT_EQ(proto::FromProto(driver.Job().ended()), kStart + absl::Seconds(12));
  for (const v1::Event& event : driver.events) {
    if (event.to() == v1::JOB_STATE_STOPPING) {
      EXPECT_EQ(proto::FromProto(event.time()), kStart + absl::Seconds(11));
      EXPECT_EQ(proto::FromProto(event.decided()), driver.now);
    }
  }
}

TEST(DeathTest, LateReportedCheckpointKeepsItsTime) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.now += absl::Minutes(5);
  CheckpointNoticed noticed = Noticed();
  noticed.notice.mutable_committed()->set_step(5);
  *noticed.notice.mutable_at() = proto::ToProto(kStart + absl::Seconds(7));
  driver.Feed(noticed);
  EXPECT_EQ(driver.events.back().reason(), "CheckpointCommitted");
  EXPECT_EQ(proto::FromProto(driver.events.back().time()), kStart + absl::Seconds(7));
}

TEST(DeathTest, ACheckpointInAnInventoryIsNotLost) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.SayAll("b", "id-job", v1::RANK_PHASE_EXITED);
  driver.Disconnect("a");
  v1::Hello hello = HelloOf("a", 1);
  v1::AttemptStatus& status = *hello.mutable_inventory()->add_attempts();
  status = StatusOf("id-job");
  AddRank(status, 0, v1::RANK_PHASE_EXITED);
  status.set_ended(true);
  v1::CheckpointNotice& notice = *hello.mutable_inventory()->add_notices();
  *notice.mutable_id() = status.id();
  notice.mutable_committed()->set_step(50);
  notice.set_number(1);
  driver.Connect(hello);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(driver.Job().checkpoints().last_step(), 50);
  // It is sent again after the welcome.
  const size_t num_events = driver.events.size();
  driver.Feed(CheckpointNoticed{.worker = "a", .notice = notice});
  EXPECT_EQ(driver.events.size(), num_events);
}

TEST(DeathTest, DaemonsOwnSignalIsNoCause) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Say("a", Failed(0, CauseOf(v1::FAILURE_CLASS_NUMERIC, "NotFinite", 0, 5)));
  v1::AttemptStatus stopped = Failed(1, CauseOf(v1::FAILURE_CLASS_REQUESTED, "NotFinite", SIGKILL, 1));
  stopped.mutable_ranks(0)->set_stop_requested(true);
  driver.Say("b", stopped);
  EXPECT_EQ(driver.StateAndReason(), "FAILED NotFinite");
  EXPECT_EQ(driver.Job().cause().rank(), 0);
}

// The peer feels the loss within milliseconds, so the stop may reach the daemon before its rank's death does.
TEST(DeathTest, KillDuringARequestedStopIsTheCause) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Say("a", Failed(0, CauseOf(v1::FAILURE_CLASS_PEER_LOST, "PeerLost", 0, 1)));
  v1::AttemptStatus killed = Failed(1, CauseOf(v1::FAILURE_CLASS_INFRASTRUCTURE, "RankKilled", SIGKILL, 2));
  killed.mutable_ranks(0)->set_stop_requested(true);
  driver.Say("b", killed);
  EXPECT_EQ(driver.StateAndReason(), "FAILED RankKilled");
  EXPECT_EQ(driver.Job().cause().rank(), 1);
}

TEST(DeathTest, ExitingWithoutFinishingFails) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.SayAll("a", "id-job", v1::RANK_PHASE_EXITED);
  v1::AttemptStatus status = StatusOf("id-job");
  AddRank(status, 1, v1::RANK_PHASE_EXITED).set_finished(false);
  driver.Say("b", status);
  EXPECT_EQ(driver.StateAndReason(), "FAILED ExitedWithoutFinishing");
}

TEST(DeathTest, AFailureAfterFinishingFailsToo) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.SayAll("a", "id-job", v1::RANK_PHASE_EXITED);
  driver.SayAll("b", "id-job", v1::RANK_PHASE_FINISHED);
  EXPECT_EQ(driver.Job().outcome(), v1::JOB_STATE_SUCCEEDED);
  v1::AttemptStatus status = Failed(1, CauseOf(v1::FAILURE_CLASS_INFRASTRUCTURE, "RankKilled", SIGSEGV));
  status.mutable_ranks(0)->set_finished(true);
  driver.Say("b", status);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_FAILED);
}

TEST(DeathTest, ARefusalFailsTheJob) {
  Driver driver(v1::JOB_STATE_ADMITTED);
  v1::AttemptStatus status = StatusOf("id-job");
  *status.mutable_refused() = CauseOf(v1::FAILURE_CLASS_USER, "FilesMissing");
  driver.Say("a", status);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_STOPPING);
  EXPECT_EQ(driver.Job().cause().worker(), "a");
  driver.Wait(absl::Seconds(2));  // b never spoke of it
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(driver.Job().cause().class_(), v1::FAILURE_CLASS_USER);
}

// The first word of a rank that is ready, with what `set` makes of it.
void SayReady(Driver& driver, const char* worker, int rank, const std::function<void(v1::Ready&)>& set) {
  v1::AttemptStatus status = StatusOf("id-job");
  set(*AddRank(status, rank, v1::RANK_PHASE_READY).mutable_ready());
  driver.Say(worker, status);
}

TEST(DeathTest, DisagreeingRanksStopTheAttemptAndAreNamed) {
  using Set = std::function<void(v1::Ready & ready, const char* digest)>;
  const std::map<std::string, Set> digests = {
      {"program", [](v1::Ready& ready, const char* digest) { ready.set_program_digest(digest); }},
      {"layout", [](v1::Ready& ready, const char* digest) { ready.set_layout_digest(digest); }},
      {"data", [](v1::Ready& ready, const char* digest) { ready.set_data_digest(digest); }},
      {"weights that they start from",
       [](v1::Ready& ready, const char* digest) { ready.mutable_started_from()->set_digest(digest); }},
      {"kernels of their GPUs",
       [](v1::Ready& ready, const char* digest) { ready.set_kernels_digest(digest); }}};
  for (const auto& [what, set] : digests) {
    SCOPED_TRACE(what);
    Driver driver(v1::JOB_STATE_STARTING);
    SayReady(driver, "a", 0, [&](v1::Ready& ready) { set(ready, "one"); });
    SayReady(driver, "b", 1, [&](v1::Ready& ready) { set(ready, "other"); });
    EXPECT_EQ(driver.StateAndReason(), "STOPPING DigestMismatch");
    EXPECT_THAT(driver.Job().message(),
                ::testing::StartsWith("rank 0 on worker a and rank 1 on worker b disagree on the " + what +
                                      " (one and other); "));
  }
}

TEST(DeathTest, RanksOfTwoBuildsAreRefusedByName) {
  for (const std::string program : {"program", "another, as a consequence"}) {
    Driver driver(v1::JOB_STATE_STARTING);
    SayReady(driver, "a", 0, [](v1::Ready& ready) { ready.set_build("0.1.0+0123456789ab"); });
    SayReady(driver, "b", 1, [&](v1::Ready& ready) {
      ready.set_build("0.1.0+ba9876543210");
      ready.set_program_digest(program);
    });
    EXPECT_EQ(driver.StateAndReason(), "STOPPING BuildMismatch");
    EXPECT_EQ(driver.Job().cause().class_(), v1::FAILURE_CLASS_INFRASTRUCTURE);
    EXPECT_EQ(driver.Job().message(),
              "rank 0 on worker a is of build 0.1.0+0123456789ab, and rank 1 on worker b of build "
              "0.1.0+ba9876543210, which may compute other numbers; run the same build on every worker");
  }
}

// An earlier controller let them start.
TEST(DeathTest, JobAlreadyRunningOnTwoBuildsContinues) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.state.workers.clear();  // the controller is started again
  for (const auto& [worker, rank] : {std::pair<const char*, int>{"a", 0}, {"b", 1}}) {
    v1::Hello hello = HelloOf(worker, 1);
    v1::AttemptStatus& status = *hello.mutable_inventory()->add_attempts();
    status = StatusOf("id-job");
    AddRank(status, rank, v1::RANK_PHASE_STEPPING)
        .mutable_ready()
        ->set_build(std::string("0.1.0+of-") + worker);
    driver.Connect(hello);
  }
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING) << driver.Job().message();
}

TEST(DeathTest, WhatOneRankStartsFromMayBeUnknown) {
  Driver driver(v1::JOB_STATE_STARTING);
  SayReady(driver, "a", 0, [](v1::Ready&) {});
  SayReady(driver, "b", 1, [](v1::Ready& ready) { ready.mutable_started_from()->set_digest("known"); });
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING) << driver.Job().message();
}

TEST(DeathTest, CancelWorksInEveryState) {
  const Cancel cancel{.job = "job", .reason = "CancelledByUser", .actor = "local"};
  {
    Driver driver;
    driver.Feed(SubmitOf("job", 1));
    driver.Feed(cancel);
    EXPECT_EQ(driver.StateAndReason(), "CANCELLED CancelledByUser");
    EXPECT_TRUE(driver.state.jobs.queue().empty());
    EXPECT_TRUE(absl::IsNotFound(driver.Feed(cancel).status));
  }
  for (const v1::JobState state : {v1::JOB_STATE_ADMITTED, v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING}) {
    Driver driver(v1::JOB_STATE_ADMITTED);
    if (state != v1::JOB_STATE_ADMITTED) {
      driver.SayAll("a", "id-job", v1::RANK_PHASE_SPAWNED);
      driver.SayAll("b", "id-job", v1::RANK_PHASE_SPAWNED);
    }
    if (state == v1::JOB_STATE_RUNNING) {
      driver.SayAll("a", "id-job", v1::RANK_PHASE_READY);
      driver.SayAll("b", "id-job", v1::RANK_PHASE_READY);
    }
    ASSERT_EQ(driver.Job().state(), state);
    EXPECT_TRUE(driver.Feed(cancel).status.ok());
    EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_STOPPING);
    EXPECT_EQ(driver.Job().outcome(), v1::JOB_STATE_CANCELLED);
    EXPECT_TRUE(driver.Feed(cancel).status.ok()) << "twice is once";
    for (const auto& [worker, rank] : {std::pair{"a", 0}, {"b", 1}}) {
      v1::AttemptStatus status = StatusOf("id-job");
      v1::RankStatus& stopped = AddRank(status, rank, v1::RANK_PHASE_STEPPING);
      stopped.set_exited(true);
      stopped.set_stop_requested(true);
      driver.Say(worker, status);
    }
    EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_CANCELLED) << proto::ValueName(state);
    EXPECT_EQ(driver.Job().cause().class_(), v1::FAILURE_CLASS_REQUESTED);
  }
}

TEST(DeathTest, SlotsAreFreeWhenTheJobHasEnded) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Feed(SubmitOf("next", 2));
  driver.Say("b", Failed(1, CauseOf(v1::FAILURE_CLASS_USER, "BadData")));
  EXPECT_EQ(driver.Job("id-next").state(), v1::JOB_STATE_QUEUED);
  driver.SayAll("a", "id-job", v1::RANK_PHASE_EXITED);
  EXPECT_EQ(driver.Job("id-next").state(), v1::JOB_STATE_ADMITTED);
}

TEST(DeathTest, DaemonStoppingItsRanksFailsTheJob) {
  Driver driver(v1::JOB_STATE_RUNNING);
  v1::AttemptStatus status = StatusOf("id-job");
  v1::RankStatus& rank = AddRank(status, 1, v1::RANK_PHASE_STEPPING);
  rank.set_exited(true);
  rank.set_stop_requested(true);
  driver.Say("b", status);
  EXPECT_EQ(driver.Job().reason(), "StoppedByWorker");
  EXPECT_EQ(driver.Job().outcome(), v1::JOB_STATE_FAILED);
}

}  // namespace
}  // namespace tandem::controller
