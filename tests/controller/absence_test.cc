// SPDX-License-Identifier: Apache-2.0
// What it means that a worker or the controller is away, or that a rank does not come.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "controller/core/assignments.h"
#include "controller/core/decide.h"
#include "controller/rpc/sessions.h"
#include "proto/time.h"
#include "tests/controller/job_builder.h"

namespace tandem::controller {
namespace {

// A restart of the controller: rows are kept, nothing that was observed.
State Restarted(const State& before, absl::Time now) {
  State out;
  out.awake_since = now;
  out.last_seq = before.last_seq;
  out.jobs = before.jobs;
  return out;
}

TEST(AbsenceTest, AWorkerThatStaysAwayLosesTheJob) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Disconnect("b");
  driver.Wait(absl::Seconds(29));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING);
  driver.Wait(absl::Seconds(2));
  EXPECT_EQ(driver.Job().reason(), "WorkerLost");
  EXPECT_THAT(driver.Job().cause().missing_ranks(), ::testing::ElementsAre(1));
  driver.Wait(absl::Seconds(2));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_STOPPING) << "rank 0 runs still";
  driver.SayAll("a", "id-job", v1::RANK_PHASE_EXITED);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(driver.Job().message(), ::testing::HasSubstr("not heard of: the ranks of worker b"));
  EXPECT_TRUE(WhyNotSchedulable(driver.state, driver.state.workers.at("a")).empty());
}

TEST(AbsenceTest, AStandstillOfTheControllerLosesNoWorker) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Wait(absl::Seconds(1));
  driver.Disconnect("b");
  driver.now += 10 * driver.state.limits.worker_timeout;  // nothing is heard, not even a tick
  driver.Feed(Tick{.awake_since = driver.now});
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING);
  driver.Wait(driver.state.limits.worker_timeout - absl::Seconds(1));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING);
  driver.Wait(absl::Seconds(1));
  EXPECT_EQ(driver.Job().reason(), "WorkerLost") << "it had all of its time to return";
}

TEST(WakefulnessTest, IsBrokenByAPauseOfEveryThread) {
  Wakefulness wakefulness(kStart, absl::Seconds(2));
  EXPECT_EQ(wakefulness.Touch(kStart + absl::Seconds(2)), kStart);
  EXPECT_EQ(wakefulness.Touch(kStart + absl::Seconds(1)), kStart) << "threads may come a little out of order";
  EXPECT_EQ(wakefulness.Touch(kStart + absl::Seconds(4)), kStart);
  EXPECT_EQ(wakefulness.Touch(kStart + absl::Seconds(7)), kStart + absl::Seconds(7));
  EXPECT_EQ(wakefulness.Touch(kStart + absl::Seconds(8)), kStart + absl::Seconds(7));
}

TEST(AbsenceTest, WorkerReturningInTimeKeepsItsAttempt) {
  Driver driver(v1::JOB_STATE_RUNNING);
  const v1::AttemptStatus said = driver.state.workers.at("b").attempts.at({"id-job", 1});
  driver.Disconnect("b");
  driver.Wait(absl::Seconds(20));
  v1::Hello hello = HelloOf("b", 1);
  *hello.mutable_inventory()->add_attempts() = said;
  driver.Connect(hello);
  driver.Wait(absl::Seconds(100));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING);
}

TEST(AbsenceTest, WorkerReturningWithoutAttemptLosesTheJob) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Disconnect("b");
  driver.Connect("b", 1, /*incarnation=*/2);
  EXPECT_EQ(driver.Job().reason(), "WorkerLost");
  EXPECT_EQ(AssignmentsFor(driver.state, "b").all_size(), 0) << "it is not started again";
  driver.SayAll("a", "id-job", v1::RANK_PHASE_EXITED);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_FAILED);
}

TEST(AbsenceTest, NewIncarnationMeansOldRanksAreDead) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Disconnect("b");
  v1::Hello hello = HelloOf("b", 1, /*incarnation=*/2);
  v1::AttemptStatus& status = *hello.mutable_inventory()->add_attempts();
  status = StatusOf("id-job");
  AddRank(status, 1, v1::RANK_PHASE_STEPPING).set_exited(true);
  status.set_ended(true);
  driver.Connect(hello);
  EXPECT_EQ(driver.Job().reason(), "WorkerLost");
}

TEST(AbsenceTest, KilledDaemonIsWorkerLostDespitePeers) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Disconnect("b");
  driver.Say("a", Failed(0, CauseOf(v1::FAILURE_CLASS_PEER_LOST, "PeerLost")));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING) << "it may be back with its last words";
  driver.Wait(driver.state.limits.cause_wait);
  EXPECT_EQ(driver.StateAndReason(), "STOPPING WorkerLost") << "and not PeerLost first";
  driver.Wait(absl::Seconds(1));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_STOPPING);
  driver.Wait(absl::Seconds(1));
  EXPECT_EQ(driver.StateAndReason(), "FAILED WorkerLost");
}

TEST(AbsenceTest, UndeliveredAttemptIsSentAgain) {
  Driver driver(v1::JOB_STATE_ADMITTED);
  driver.Disconnect("a");
  driver.Connect("a", 1);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(AssignmentsFor(driver.state, "a").all_size(), 1);
}

TEST(AbsenceTest, AttemptNotAcceptedInTimeFails) {
  Driver driver(v1::JOB_STATE_ADMITTED);
  driver.SayAll("a", "id-job", v1::RANK_PHASE_SPAWNED);
  driver.Wait(driver.state.limits.start_timeout - absl::Seconds(1));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_ADMITTED);
  driver.Wait(absl::Seconds(1));
  EXPECT_EQ(driver.StateAndReason(), "STOPPING StartTimeout");
  EXPECT_EQ(driver.Job().cause().class_(), v1::FAILURE_CLASS_INFRASTRUCTURE);
  EXPECT_THAT(driver.Job().cause().missing_ranks(), ::testing::ElementsAre(0, 1));
  EXPECT_THAT(
      driver.Job().message(),
      ::testing::StartsWith("not ready within 15m: rank 0 on worker a is spawned, rank 1 on worker b is "
                            "not accepted; "));
  EXPECT_EQ(AssignmentsFor(driver.state, "b").all_size(), 0) << "withdrawn there";
  driver.SayAll("a", "id-job", v1::RANK_PHASE_EXITED);
  driver.Wait(absl::Seconds(2));
  EXPECT_EQ(driver.StateAndReason(), "FAILED StartTimeout");
}

TEST(AbsenceTest, ALateRankIsNamedWithItsPhase) {
  Driver driver(v1::JOB_STATE_STARTING);
  driver.SayAll("a", "id-job", v1::RANK_PHASE_READY);
  driver.SayAll("b", "id-job", v1::RANK_PHASE_CONNECTING);
  driver.Wait(driver.state.limits.start_timeout);
  EXPECT_EQ(driver.Job().reason(), "StartTimeout");
  EXPECT_EQ(driver.Job().cause().rank(), 1);
  EXPECT_EQ(driver.Job().cause().worker(), "b");
  EXPECT_THAT(driver.Job().message(), ::testing::HasSubstr(": rank 1 on worker b is connecting; "));
}

// Both ranks load, and have last moved so long ago.
void SayLoading(Driver& driver, absl::Duration since_progress) {
  for (const int rank : {0, 1}) {
    v1::AttemptStatus status = StatusOf("id-job");
    *AddRank(status, rank, v1::RANK_PHASE_LOADING).mutable_since_progress() = proto::ToProto(since_progress);
    driver.Say(rank == 0 ? "a" : "b", status);
  }
}

// A checkpoint of some 100 GB takes longer to read than a start may take otherwise.
TEST(AbsenceTest, RanksReadingACheckpointMayTakeLong) {
  Driver driver(v1::JOB_STATE_STARTING);
  const absl::Duration timeout = driver.state.limits.start_timeout;
  for (int part = 0; part < 10; ++part) {
    driver.Wait(timeout / 4);
    SayLoading(driver, absl::Seconds(3));
    EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_STARTING);
  }
  driver.Wait(timeout - absl::Seconds(4));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_STARTING);
  driver.Wait(absl::Seconds(1));
  EXPECT_EQ(driver.Job().reason(), "StartTimeout") << "they no longer do";
}

TEST(AbsenceTest, LoadingRestartsTheStartTimeout) {
  Driver driver(v1::JOB_STATE_STARTING);
  const absl::Duration timeout = driver.state.limits.start_timeout;
  driver.Wait(timeout / 2);
  SayLoading(driver, absl::ZeroDuration());
  driver.Wait(timeout - absl::Seconds(1));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_STARTING);
  driver.Wait(absl::Seconds(1));
  EXPECT_EQ(driver.Job().reason(), "StartTimeout");
}

TEST(AbsenceTest, ReadyRanksHaveNoDeadline) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Wait(10 * driver.state.limits.start_timeout);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING);
}

// What its two workers say of the driver's job when they connect again.
std::vector<v1::Hello> HellosOf(const Driver& driver) {
  std::vector<v1::Hello> hellos;
  for (const char* worker : {"a", "b"}) {
    v1::Hello& hello = hellos.emplace_back(HelloOf(worker, 1));
    *hello.mutable_inventory()->add_attempts() = driver.state.workers.at(worker).attempts.at({"id-job", 1});
  }
  return hellos;
}

TEST(AbsenceTest, ARestartedControllerAdoptsTheRunningAttempt) {
  Driver driver(v1::JOB_STATE_RUNNING);
  const std::vector<v1::Hello> hellos = HellosOf(driver);
  driver.state = Restarted(driver.state, driver.now);
  driver.Wait(absl::Seconds(10));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING);
  driver.Connect(hellos[0]);
  driver.Connect(hellos[1]);
  driver.Wait(absl::Seconds(60));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(driver.Job().attempt(), 1);
  EXPECT_EQ(AssignmentsFor(driver.state, "a").all(0).desired(), v1::DESIRED_RUN);
  driver.SayAll("a", "id-job", v1::RANK_PHASE_EXITED);
  driver.SayAll("b", "id-job", v1::RANK_PHASE_EXITED);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_SUCCEEDED);
}

TEST(AbsenceTest, ReturningControllerRestartsTheStartTimeout) {
  Driver driver(v1::JOB_STATE_STARTING);
  const std::vector<v1::Hello> hellos = HellosOf(driver);
  driver.now += 2 * driver.state.limits.start_timeout;
  driver.state = Restarted(driver.state, driver.now);
  driver.Connect(hellos[0]);
  driver.Connect(hellos[1]);
  driver.Wait(absl::Seconds(1));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_STARTING);
  driver.Wait(driver.state.limits.start_timeout);
  EXPECT_EQ(driver.Job().reason(), "StartTimeout");
}

TEST(AbsenceTest, UnlistedAttemptIsLostAfterRestart) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.state = Restarted(driver.state, driver.now);
  driver.Connect("a", 1);
  EXPECT_EQ(driver.Job().reason(), "WorkerLost");
  driver.Wait(absl::Seconds(2));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_FAILED) << "b has not returned, and is listed";
}

TEST(AbsenceTest, UnwantedAttemptBlocksItsWorkersSlots) {
  Driver driver;
  v1::Hello hello = HelloOf("a", 1);
  v1::AttemptStatus& status = *hello.mutable_inventory()->add_attempts();
  status = StatusOf("long-gone");
  AddRank(status, 0, v1::RANK_PHASE_STEPPING);
  driver.Connect(hello);
  EXPECT_EQ(WhyNotSchedulable(driver.state, driver.state.workers.at("a")), "StoppingLeftovers");
  driver.Feed(SubmitOf("job", 1));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_QUEUED);
  v1::AttemptStatus ended = StatusOf("long-gone");
  ended.set_ended(true);
  driver.Say("a", ended);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(AssignmentsFor(driver.state, "a").forget_size(), 1);
}

TEST(AbsenceTest, AnOldSessionsEndChangesNothing) {
  Driver driver;
  driver.Connect("a", 1);
  const std::string old = driver.state.workers.at("a").session;
  driver.Connect("a", 1);
  EXPECT_TRUE(driver.Feed(WorkerDisconnected{.worker = "a", .session = old}).events.empty());
  EXPECT_TRUE(driver.state.workers.at("a").connected);
}

}  // namespace
}  // namespace tandem::controller
