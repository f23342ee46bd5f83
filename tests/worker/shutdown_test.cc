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

const AttemptKey kOnlyJob{.job = "j", .attempt = 1};

TEST(ShutdownTest, EndsOnceEveryRankIsReported) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 1));
  core.Feed(ShutdownAsked{absl::ZeroDuration()});
  EXPECT_THAT(core.Take<SendToRank>(), SizeIs(1));
  core.Exits(kOnlyJob, 0, {.exit_code = 81});
  EXPECT_THAT(core.Take<ExitProcess>(), IsEmpty());
  core.Feed(EndRecorded{kOnlyJob});
  const v1::AttemptStatus status = core.TakeStatus();
  EXPECT_TRUE(status.ended());
  EXPECT_EQ(status.ranks(0).cause().reason(), "WorkerStopped");
  const std::vector<ExitProcess> exits = core.Take<ExitProcess>();
  ASSERT_THAT(exits, SizeIs(1));
  EXPECT_EQ(exits[0].problem, "");
}

TEST(ShutdownTest, EndsAtTheLimitThoughARankStays) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 1));
  core.Feed(ShutdownAsked{absl::ZeroDuration()});
  core.Advance(kDefaultGrace);
  EXPECT_THAT(core.Take<Kill>(), SizeIs(1));
  EXPECT_EQ(NextWake(core.state()), core.now() + kShutdownLimit - kDefaultGrace);
  core.Advance(kShutdownLimit - kDefaultGrace);
  EXPECT_THAT(core.Take<ExitProcess>(), SizeIs(1));
}

TEST(ShutdownTest, TakesNoNewWork) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("a", 1));
  core.Feed(ShutdownAsked{absl::ZeroDuration()});
  core.Assign({CoreHarness::Job("a", 1), CoreHarness::Job("b", 1)});
  EXPECT_EQ(core.state().live.size(), 1u);
}

TEST(ShutdownTest, DrainSavesEachJob) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 2));
  core.Feed(ShutdownAsked{absl::Seconds(30)});
  const std::vector<SendToRank> sent = core.Take<SendToRank>();
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_EQ(sent[0].message.request(), v1::DESIRED_STOP_AFTER_CHECKPOINT);
  EXPECT_EQ(sent[0].message.request_id(), 0u);
  core.Advance(absl::Seconds(20));
  EXPECT_THAT(core.Take<SendToRank>(), IsEmpty()) << "asked once";
  core.Exits(kOnlyJob, 0, {.exit_code = 75});
  core.Exits(kOnlyJob, 1, {.exit_code = 75});
  core.Feed(EndRecorded{kOnlyJob});
  const v1::AttemptStatus status = core.TakeStatus();
  EXPECT_EQ(status.ranks(0).cause().class_(), v1::FAILURE_CLASS_PREEMPTED);
  EXPECT_EQ(status.ranks(0).cause().reason(), "Preempted");
  EXPECT_THAT(core.Take<ExitProcess>(), SizeIs(1));
}

TEST(ShutdownTest, RanksThatOutlastTheDrainAreStopped) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 1));
  core.Feed(ShutdownAsked{absl::Seconds(30)});
  core.Take<SendToRank>();
  EXPECT_EQ(NextWake(core.state()), core.now() + absl::Seconds(30));
  core.Advance(absl::Seconds(30));
  const std::vector<SendToRank> sent = core.Take<SendToRank>();
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_EQ(sent[0].message.request(), v1::DESIRED_STOP_NOW);
  core.Exits(kOnlyJob, 0, {.exit_code = 81});
  EXPECT_EQ(core.TakeStatus().ranks(0).cause().reason(), "WorkerStopped");
}

TEST(ShutdownTest, SecondSignalOnlyShortensTheDrain) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 1));
  core.Feed(ShutdownAsked{absl::Seconds(30)});
  core.Take<SendToRank>();
  const absl::Time end = core.now() + absl::Seconds(30);
  core.Advance(absl::Seconds(10));
  core.Feed(ShutdownAsked{absl::Seconds(30)});
  EXPECT_EQ(NextWake(core.state()), end);
  core.Feed(ShutdownAsked{absl::ZeroDuration()});
  const std::vector<SendToRank> sent = core.Take<SendToRank>();
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_EQ(sent[0].message.request(), v1::DESIRED_STOP_NOW);
}

TEST(ShutdownTest, ADrainWithoutAJobEndsAtOnce) {
  CoreHarness idle;
  idle.Connect();
  idle.Feed(ShutdownAsked{absl::Seconds(30)});
  EXPECT_THAT(idle.Take<ExitProcess>(), SizeIs(1));
}

// Or the controller would wait for one that has gone for good.
TEST(ShutdownTest, LeavingIsReportedHoweverLateItIs) {
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

TEST(ShutdownTest, UnwelcomedWorkerLeavesSilently) {
  CoreHarness idle;
  idle.Feed(Connected{.data_address = "127.0.0.1"});
  idle.Feed(ShutdownAsked{absl::ZeroDuration()});
  EXPECT_THAT(idle.TakeMessages(v1::WorkerMessage::kHeartbeat), IsEmpty());
  EXPECT_THAT(idle.Take<ExitProcess>(), SizeIs(1));
}

TEST(ShutdownTest, ADrainingWorkerRefusesLateAssignments) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("a", 1));
  core.Take<SendToController>();
  core.Feed(ShutdownAsked{absl::Seconds(30)});
  const std::vector<v1::WorkerMessage> heartbeats = core.TakeMessages(v1::WorkerMessage::kHeartbeat);
  ASSERT_THAT(heartbeats, SizeIs(1));
  EXPECT_TRUE(heartbeats[0].heartbeat().draining());
  core.Feed(Sampled{});
  EXPECT_THAT(core.TakeMessages(v1::WorkerMessage::kHeartbeat), IsEmpty());

  core.Assign({CoreHarness::Job("a", 1), CoreHarness::Job("b", 1)});
  const v1::AttemptStatus status = core.TakeStatus();
  EXPECT_EQ(status.id().job_id(), "b");
  EXPECT_EQ(status.refused().class_(), v1::FAILURE_CLASS_PREEMPTED);

  core.Feed(Disconnected{});
  core.Connect({CoreHarness::Job("a", 1)});
  const std::vector<v1::WorkerMessage> hellos = core.TakeMessages(v1::WorkerMessage::kHello);
  ASSERT_THAT(hellos, SizeIs(1));
  EXPECT_TRUE(hellos[0].hello().inventory().draining());
}

}  // namespace
}  // namespace tandem::worker
