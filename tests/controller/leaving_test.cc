// SPDX-License-Identifier: Apache-2.0
// What becomes of a worker that was asked to end, and of what is known of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "controller/core/decide.h"
#include "controller/core/state.h"
#include "tests/controller/job_builder.h"

namespace tandem::controller {
namespace {

// What a commit does once the events are durable.
void Disconnect(Driver& driver, const std::string& worker) {
  driver.Disconnect(worker);
  Prune(driver.state);
}

// One rank of the job, which its worker's end has stopped after a checkpoint.
v1::AttemptStatus Preempted(int rank) {
  return Failed(rank, CauseOf(v1::FAILURE_CLASS_PREEMPTED, "Preempted"));
}

TEST(LeavingTest, WorkerEndingOnRequestLeavesWithAnEvent) {
  Driver driver;
  driver.Connect("a", 2);
  driver.Feed(WorkerDraining{.worker = "a"});
  driver.Disconnect("a");
  EXPECT_EQ(driver.events.back().reason(), "WorkerLeft");
  EXPECT_EQ(driver.events.back().message(), "worker a has left, as it was asked to, session s1");
  EXPECT_FALSE(driver.events.back().worker().connected());
  Prune(driver.state);
  EXPECT_FALSE(driver.state.workers.contains("a"));
}

TEST(LeavingTest, AHelloSaysThatTheWorkerWillEnd) {
  Driver driver;
  v1::Hello hello = HelloOf("a", 2);
  hello.mutable_inventory()->set_draining(true);
  driver.Connect(hello);
  Disconnect(driver, "a");
  EXPECT_EQ(driver.events.back().reason(), "WorkerLeft");
  EXPECT_FALSE(driver.state.workers.contains("a"));
}

TEST(LeavingTest, AWorkerThatVanishedStaysListed) {
  Driver driver;
  driver.Connect("a", 2);
  Disconnect(driver, "a");
  EXPECT_EQ(driver.events.back().reason(), "WorkerDisconnected");
  ASSERT_TRUE(driver.state.workers.contains("a"));
  EXPECT_EQ(Describe(driver.state, "a").reason(), "NotConnected");
}

TEST(LeavingTest, NewestThousandVanishedWorkersStayListed) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Disconnect("a");  // it has a rank
  for (int i = 0; i < 1001; ++i) {
    driver.now += absl::Milliseconds(1);
    const std::string worker = "gone-" + std::to_string(i);
    driver.Connect(worker, 1);
    driver.Disconnect(worker);
  }
  Prune(driver.state);
  EXPECT_EQ(driver.state.workers.size(), 1001U) << "b is connected";
  EXPECT_TRUE(driver.state.workers.contains("a"));
  EXPECT_FALSE(driver.state.workers.contains("gone-0"));
  EXPECT_FALSE(driver.state.workers.contains("gone-1"));
  EXPECT_TRUE(driver.state.workers.contains("gone-2"));
}

// What it said of its ranks decides how the job ends, so it is kept for as long as others run.
TEST(LeavingTest, LeaversStatusesCountUntilTheJobEnds) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Feed(WorkerDraining{.worker = "b"});
  driver.Say("b", Preempted(1));
  Disconnect(driver, "b");
  EXPECT_TRUE(driver.state.workers.contains("b"));
  driver.Wait(2 * driver.state.limits.settle);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_STOPPING) << "rank 0 runs still";
  driver.Say("a", Preempted(0));
  EXPECT_EQ(driver.StateAndReason(), "FAILED Preempted") << driver.Job().message();
  EXPECT_THAT(driver.Job().message(), testing::Not(testing::HasSubstr("not heard of")));
  Prune(driver.state);
  EXPECT_FALSE(driver.state.workers.contains("b"));
  EXPECT_TRUE(driver.state.workers.contains("a"));
}

TEST(LeavingTest, WorkerLeavingLiveRanksStaysListed) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Feed(WorkerDraining{.worker = "b"});
  Disconnect(driver, "b");
  EXPECT_EQ(driver.events.back().reason(), "WorkerDisconnected") << "killed, or cut off";
  driver.Wait(driver.state.limits.worker_timeout);
  driver.SayAll("a", "id-job", v1::RANK_PHASE_EXITED);
  driver.Wait(driver.state.limits.settle);
  EXPECT_EQ(driver.Job().reason(), "WorkerLost");
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_FAILED);
  Prune(driver.state);
  EXPECT_TRUE(driver.state.workers.contains("b")) << "nobody knows whether its ranks run still";
}

TEST(LeavingTest, ARestartedWorkerIsListedAgain) {
  Driver driver;
  driver.Connect("a", 2);
  driver.Feed(WorkerDraining{.worker = "a"});
  Disconnect(driver, "a");
  driver.Connect("a", 2, /*incarnation=*/2);
  EXPECT_TRUE(Describe(driver.state, "a").schedulable());
  Disconnect(driver, "a");
  EXPECT_EQ(driver.events.back().reason(), "WorkerDisconnected");
  EXPECT_TRUE(driver.state.workers.contains("a"));
}

// It keeps the record of an end until it is told to forget it, which may not have reached it.
TEST(LeavingTest, RepeatedEndChangesNothing) {
  Driver driver(v1::JOB_STATE_RUNNING);
  for (const char* const worker : {"a", "b"}) {
    driver.Feed(WorkerDraining{.worker = worker});
  }
  driver.Say("a", Preempted(0));
  driver.Say("b", Preempted(1));
  for (const char* const worker : {"a", "b"}) {
    Disconnect(driver, worker);
  }
  EXPECT_TRUE(driver.state.workers.empty());
  v1::Hello hello = HelloOf("b", 1, /*incarnation=*/2);
  *hello.mutable_inventory()->add_attempts() = Preempted(1);
  driver.Connect(hello);
  EXPECT_EQ(driver.events.back().reason(), "WorkerConnected");
  EXPECT_TRUE(Describe(driver.state, "b").schedulable());
}

}  // namespace
}  // namespace tandem::controller
