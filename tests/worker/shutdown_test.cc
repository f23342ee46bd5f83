// SPDX-License-Identifier: Apache-2.0
// How the core ends: at once, or once its jobs have saved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "tests/worker/core_harness.h"
#include "worker/step.h"

namespace tandem::worker {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

using ShutdownTest = CoreTest;

const AttemptKey kOnlyJob{.job = "j", .attempt = 1};

TEST_F(ShutdownTest, EndsOnceEveryRankIsReported) {
  core_.StartJob(CoreHarness::Job("j", 1));
  core_.Feed(ShutdownAsked{absl::ZeroDuration()});
  EXPECT_THAT(core_.Take<SendToRank>(), SizeIs(1));
  core_.Exits(kOnlyJob, 0, {.exit_code = 81});
  EXPECT_THAT(core_.Take<ExitProcess>(), IsEmpty());
  core_.Feed(EndRecorded{kOnlyJob});
  const v1::AttemptStatus status = core_.TakeStatus();
  EXPECT_TRUE(status.ended());
  EXPECT_EQ(status.ranks(0).cause().reason(), "WorkerStopped");
  EXPECT_EQ(core_.TakeOne<ExitProcess>().problem, "");
}

TEST_F(ShutdownTest, EndsAtTheLimitThoughARankStays) {
  core_.StartJob(CoreHarness::Job("j", 1));
  core_.Feed(ShutdownAsked{absl::ZeroDuration()});
  core_.Advance(kDefaultGrace);
  EXPECT_THAT(core_.Take<Kill>(), SizeIs(1));
  EXPECT_EQ(NextWake(core_.state()), core_.now() + kShutdownLimit - kDefaultGrace);
  core_.Advance(kShutdownLimit - kDefaultGrace);
  EXPECT_THAT(core_.Take<ExitProcess>(), SizeIs(1));
}

TEST_F(ShutdownTest, TakesNoNewWork) {
  core_.StartJob(CoreHarness::Job("a", 1));
  core_.Feed(ShutdownAsked{absl::ZeroDuration()});
  core_.Assign({CoreHarness::Job("a", 1), CoreHarness::Job("b", 1)});
  EXPECT_EQ(core_.state().live.size(), 1u);
}

TEST_F(ShutdownTest, DrainSavesEachJob) {
  core_.StartJob(CoreHarness::Job("j", 2));
  core_.Feed(ShutdownAsked{absl::Seconds(30)});
  const SendToRank sent = core_.TakeOne<SendToRank>();
  EXPECT_EQ(sent.message.request(), v1::DESIRED_STOP_AFTER_CHECKPOINT);
  EXPECT_EQ(sent.message.request_id(), 0u);
  core_.Advance(absl::Seconds(20));
  EXPECT_THAT(core_.Take<SendToRank>(), IsEmpty()) << "asked once";
  core_.Exits(kOnlyJob, 0, {.exit_code = 75});
  core_.Exits(kOnlyJob, 1, {.exit_code = 75});
  core_.Feed(EndRecorded{kOnlyJob});
  const v1::AttemptStatus status = core_.TakeStatus();
  EXPECT_EQ(status.ranks(0).cause().class_(), v1::FAILURE_CLASS_PREEMPTED);
  EXPECT_EQ(status.ranks(0).cause().reason(), "Preempted");
  EXPECT_THAT(core_.Take<ExitProcess>(), SizeIs(1));
}

TEST_F(ShutdownTest, RanksThatOutlastTheDrainAreStopped) {
  core_.StartJob(CoreHarness::Job("j", 1));
  core_.Feed(ShutdownAsked{absl::Seconds(30)});
  core_.Take<SendToRank>();
  EXPECT_EQ(NextWake(core_.state()), core_.now() + absl::Seconds(30));
  core_.Advance(absl::Seconds(30));
  EXPECT_EQ(core_.TakeOne<SendToRank>().message.request(), v1::DESIRED_STOP_NOW);
  core_.Exits(kOnlyJob, 0, {.exit_code = 81});
  EXPECT_EQ(core_.TakeStatus().ranks(0).cause().reason(), "WorkerStopped");
}

TEST_F(ShutdownTest, SecondSignalOnlyShortensTheDrain) {
  core_.StartJob(CoreHarness::Job("j", 1));
  core_.Feed(ShutdownAsked{absl::Seconds(30)});
  core_.Take<SendToRank>();
  const absl::Time end = core_.now() + absl::Seconds(30);
  core_.Advance(absl::Seconds(10));
  core_.Feed(ShutdownAsked{absl::Seconds(30)});
  EXPECT_EQ(NextWake(core_.state()), end);
  core_.Feed(ShutdownAsked{absl::ZeroDuration()});
  EXPECT_EQ(core_.TakeOne<SendToRank>().message.request(), v1::DESIRED_STOP_NOW);
}

TEST_F(ShutdownTest, ADrainWithoutAJobEndsAtOnce) {
  core_.Connect();
  core_.Feed(ShutdownAsked{absl::Seconds(30)});
  EXPECT_THAT(core_.Take<ExitProcess>(), SizeIs(1));
}

// Or the controller would wait for one that has gone for good.
TEST_F(ShutdownTest, LeavingIsReportedHoweverLateItIs) {
  for (const absl::Duration drain : {absl::ZeroDuration(), absl::Seconds(30)}) {
    CoreHarness idle;
    idle.Connect();
    idle.Feed(ShutdownAsked{drain});
    const std::vector<v1::WorkerMessage> heartbeats = idle.TakeMessages(v1::WorkerMessage::kHeartbeat);
    ASSERT_THAT(heartbeats, SizeIs(1)) << drain;
    EXPECT_TRUE(heartbeats[0].heartbeat().draining());
    EXPECT_THAT(idle.Take<ExitProcess>(), SizeIs(1));
  }
}

TEST_F(ShutdownTest, UnwelcomedWorkerLeavesSilently) {
  core_.Feed(Connected{.data_address = "127.0.0.1"});
  core_.Feed(ShutdownAsked{absl::ZeroDuration()});
  EXPECT_THAT(core_.TakeMessages(v1::WorkerMessage::kHeartbeat), IsEmpty());
  EXPECT_THAT(core_.Take<ExitProcess>(), SizeIs(1));
}

TEST_F(ShutdownTest, ADrainingWorkerRefusesLateAssignments) {
  core_.StartJob(CoreHarness::Job("a", 1));
  core_.Take<SendToController>();
  core_.Feed(ShutdownAsked{absl::Seconds(30)});
  const v1::WorkerMessage heartbeat = core_.TakeMessage(v1::WorkerMessage::kHeartbeat);
  EXPECT_TRUE(heartbeat.heartbeat().draining());
  core_.Feed(Sampled{});
  EXPECT_THAT(core_.TakeMessages(v1::WorkerMessage::kHeartbeat), IsEmpty());

  core_.Assign({CoreHarness::Job("a", 1), CoreHarness::Job("b", 1)});
  const v1::AttemptStatus status = core_.TakeStatus();
  EXPECT_EQ(status.id().job_id(), "b");
  EXPECT_EQ(status.refused().class_(), v1::FAILURE_CLASS_PREEMPTED);

  core_.Reconnect({CoreHarness::Job("a", 1)});
  const v1::WorkerMessage hello = core_.TakeMessage(v1::WorkerMessage::kHello);
  EXPECT_TRUE(hello.hello().inventory().draining());
}

}  // namespace
}  // namespace tandem::worker
