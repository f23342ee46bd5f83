// SPDX-License-Identifier: Apache-2.0
// The life of an attempt in the core: from the assignment to the record of its end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "proto/reasons.h"
#include "tests/worker/core_harness.h"
#include "worker/step.h"

namespace tandem::worker {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const AttemptKey kJob{.job = "j", .attempt = 1};

v1::FromTrainer Finished() {
  v1::FromTrainer message;
  message.mutable_finished()->set_step(50);
  return message;
}

v1::FromTrainer Failed(v1::FailureClass failure, const std::string& text) {
  v1::FromTrainer message;
  message.mutable_failed()->set_class_(failure);
  message.mutable_failed()->set_message(text);
  return message;
}

TEST(AttemptTest, IsCheckedThenRecordedThenSpawnedThenReported) {
  CoreHarness core;
  core.Connect({CoreHarness::Job("j", 2)});
  EXPECT_THAT(core.Take<Check>(), SizeIs(1));
  EXPECT_THAT(core.Take<RecordRanks>(), IsEmpty());
  core.Feed(Checked{.attempt = kJob});
  const std::vector<RecordRanks> records = core.Take<RecordRanks>();
  ASSERT_THAT(records, SizeIs(1));
  EXPECT_EQ(records[0].attempt, kJob);
  EXPECT_EQ(records[0].store_id, "store");
  EXPECT_THAT(records[0].ranks, testing::ElementsAre(0, 1));
  EXPECT_THAT(core.Take<Spawn>(), IsEmpty()) << "not before it is on disk";
  EXPECT_THAT(core.TakeMessages(v1::WorkerMessage::kStatus), IsEmpty()) << "neither accepted nor refused yet";
  core.Feed(RanksRecorded{.attempt = kJob});
  const std::vector<Spawn> spawns = core.Take<Spawn>();
  ASSERT_THAT(spawns, SizeIs(2));
  EXPECT_EQ(spawns[1].rank.rank, 1);
  EXPECT_EQ(spawns[1].start.rank(), 1);
  EXPECT_EQ(spawns[1].start.assignment().slots_size(), 2);
  EXPECT_EQ(spawns[1].start.build(), "b");
  EXPECT_EQ(core.TakeStatus().ranks(0).phase(), v1::RANK_PHASE_SPAWNED);
  core.Feed(RankSpawned{{kJob, 1}, 77});
  EXPECT_EQ(core.TakeStatus().ranks(1).pid(), 77);
  v1::FromTrainer ready;
  ready.mutable_ready()->set_program_digest("d");
  core.Say(kJob, 1, ready);
  const v1::AttemptStatus status = core.TakeStatus();
  EXPECT_EQ(status.ranks(1).phase(), v1::RANK_PHASE_READY);
  EXPECT_EQ(status.ranks(1).ready().program_digest(), "d");
}

TEST(AttemptTest, TheSameAssignmentAgainChangesNothing) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 2));
  core.Assign({CoreHarness::Job("j", 2)});
  EXPECT_THAT(core.Take<Check>(), IsEmpty());
  EXPECT_THAT(core.Take<Spawn>(), IsEmpty());
  EXPECT_THAT(core.Take<SendToRank>(), IsEmpty());
}

TEST(AttemptTest, EndsWithoutCauseIfAllRanksSucceed) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 2));
  for (const int rank : {0, 1}) {
    core.Say(kJob, rank, Finished());
    core.Exits(kJob, rank, {});
  }
  EXPECT_FALSE(core.TakeStatus().ended()) << "not before the end is on disk";
  const std::vector<RecordEnd> records = core.Take<RecordEnd>();
  ASSERT_THAT(records, SizeIs(1));
  EXPECT_TRUE(records[0].status.ended());
  core.Feed(EndRecorded{kJob});
  const v1::AttemptStatus status = core.TakeStatus();
  EXPECT_TRUE(status.ended());
  for (const v1::RankStatus& rank : status.ranks()) {
    EXPECT_TRUE(rank.finished() && rank.exited() && !rank.stop_requested() && !rank.has_cause());
  }
}

TEST(AttemptTest, ReportsTimesOfItsRanks) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 1));
  const absl::Time start = core.now();
  core.Advance(absl::Seconds(1));
  v1::FromTrainer ready;
  ready.mutable_ready();
  core.Say(kJob, 0, ready);
  core.Advance(absl::Seconds(1));
  core.Say(kJob, 0, Finished());
  core.Advance(absl::Seconds(1));
  core.Exits(kJob, 0, {});
  core.Advance(absl::Minutes(5));
  core.Feed(EndRecorded{kJob});
  const v1::RankStatus rank = core.TakeStatus().ranks(0);
  const auto since_start = [&](const google::protobuf::Timestamp& time) {
    return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos()) - start;
  };
  EXPECT_EQ(since_start(rank.ready_at()), absl::Seconds(1));
  EXPECT_EQ(since_start(rank.finished_at()), absl::Seconds(2));
  EXPECT_EQ(since_start(rank.exited_at()), absl::Seconds(3));
}

TEST(AttemptTest, OneDeadRankStopsTheOthers) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 3));
  core.Exits(kJob, 1, {.signal = SIGKILL});
  v1::AttemptStatus status = core.TakeStatus();
  EXPECT_EQ(status.ranks(1).cause().message(),
            "rank 1 was killed by signal 9 (SIGKILL) in step 37, after forward of microbatch 2");
  EXPECT_EQ(status.ranks(1).cause().last_instruction(), "op 3 mb 2");
  EXPECT_FALSE(status.ranks(1).stop_requested());
  EXPECT_TRUE(status.ranks(0).stop_requested());
  const std::vector<SendToRank> stops = core.Take<SendToRank>();
  ASSERT_THAT(stops, SizeIs(2));
  EXPECT_EQ(stops[0].rank.rank, 0);
  EXPECT_EQ(stops[0].message.request(), v1::DESIRED_STOP_NOW);
  EXPECT_EQ(stops[1].rank.rank, 2);

  EXPECT_EQ(NextWake(core.state()), core.now() + kDefaultGrace);
  core.Exits(kJob, 0, {.exit_code = 81});
  core.Advance(kDefaultGrace);
  const std::vector<Kill> kills = core.Take<Kill>();
  ASSERT_THAT(kills, SizeIs(1));
  EXPECT_EQ(kills[0].rank.rank, 2);
  core.Exits(kJob, 2, {.signal = SIGKILL});
  core.Feed(EndRecorded{kJob});
  status = core.TakeStatus();
  EXPECT_TRUE(status.ended());
  EXPECT_EQ(status.ranks(0).cause().class_(), v1::FAILURE_CLASS_REQUESTED);
  EXPECT_EQ(status.ranks(2).cause().class_(), v1::FAILURE_CLASS_REQUESTED);
  EXPECT_EQ(status.ranks(1).cause().reason(), "RankKilled");
}

TEST(AttemptTest, LocalPeersDeathIsNotOurStop) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 2));
  // Rank 1 is dead; rank 0 feels it before the daemon sees it.
  core.Say(kJob, 0, Failed(v1::FAILURE_CLASS_PEER_LOST, "rank 0 lost rank 1"));
  EXPECT_THAT(core.Take<SendToRank>(), IsEmpty()) << "a pause first";
  core.Advance(absl::Milliseconds(20));
  core.Exits(kJob, 1, {.signal = SIGSEGV});
  EXPECT_EQ(core.TakeStatus().ranks(1).cause().reason(), "RankKilled");
  EXPECT_THAT(core.Take<SendToRank>(), SizeIs(1));
}

// Its peers on other workers feel a crash before it is reaped here, and the controller's stop is as quick.
TEST(AttemptTest, CrashIsNotBlamedOnTheStop) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 1));
  core.Assign({});
  EXPECT_THAT(core.Take<SendToRank>(), SizeIs(1)) << "asked to stop";
  core.Advance(absl::Milliseconds(5));
  core.Exits(kJob, 0, {.signal = SIGSEGV});
  const v1::Cause cause = core.TakeStatus().ranks(0).cause();
  EXPECT_EQ(cause.reason(), "RankKilled");
  EXPECT_EQ(cause.signal(), SIGSEGV);
  EXPECT_TRUE(cause.after_stop());
}

TEST(AttemptTest, PeerLostElsewhereStopsLocalRanks) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 2));
  core.Say(kJob, 0, Failed(v1::FAILURE_CLASS_PEER_LOST, "rank 0 lost rank 7"));
  EXPECT_EQ(core.TakeStatus().ranks(0).cause().message(), "rank 0 lost rank 7");
  EXPECT_EQ(NextWake(core.state()), core.now() + kPeerLostPause);
  core.Advance(kPeerLostPause);
  EXPECT_THAT(core.Take<SendToRank>(), SizeIs(2));
}

TEST(AttemptTest, ARankThatFailedAndStaysIsKilled) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 1));
  core.Say(kJob, 0, Failed(v1::FAILURE_CLASS_USER, "bad data"));
  core.Advance(kDefaultGrace);
  EXPECT_THAT(core.Take<Kill>(), SizeIs(1));
  core.Exits(kJob, 0, {.signal = SIGKILL});
  EXPECT_EQ(core.TakeStatus().ranks(0).cause().message(), "bad data");
}

TEST(AttemptTest, UnstartableRankFailsTheAttempt) {
  CoreHarness core;
  core.Connect({CoreHarness::Job("j", 2)});
  core.Feed(Checked{.attempt = kJob});
  core.Feed(RanksRecorded{.attempt = kJob});
  core.Feed(RankSpawned{{kJob, 0}, 77});
  core.Feed(SpawnFailed{{kJob, 1}, "fork: Resource temporarily unavailable"});
  EXPECT_THAT(core.Take<SendToRank>(), SizeIs(1));
  const v1::Cause cause = core.TakeStatus().ranks(1).cause();
  EXPECT_EQ(cause.reason(), "SpawnFailed");
  EXPECT_EQ(cause.message(), "rank 1 could not be started: fork: Resource temporarily unavailable");
}

TEST(AttemptTest, UnfitFilesAreTheUsersError) {
  CoreHarness core;
  core.Connect({CoreHarness::Job("j", 2)});
  core.Feed(Checked{.attempt = kJob, .violations = "data.train: /none is not there"});
  EXPECT_THAT(core.Take<Spawn>(), IsEmpty());
  EXPECT_THAT(core.Take<RecordEnd>(), SizeIs(1));
  core.Feed(EndRecorded{kJob});
  const v1::AttemptStatus status = core.TakeStatus();
  EXPECT_TRUE(status.ended());
  EXPECT_EQ(status.refused().class_(), v1::FAILURE_CLASS_USER);
  EXPECT_EQ(status.refused().message(), "data.train: /none is not there");
  EXPECT_EQ(status.refused().worker(), "w1");
}

TEST(AttemptTest, UnwritableRecordIsTheMachinesFault) {
  CoreHarness core;
  core.Connect({CoreHarness::Job("j", 2)});
  core.Feed(Checked{.attempt = kJob});
  core.Feed(RanksRecorded{.attempt = kJob,
                          .problem = "write /state/x: No space left on device; make room",
                          .reason = proto::reason::kWorkerDisk});
  EXPECT_THAT(core.Take<Spawn>(), IsEmpty());
  const v1::Cause refused = core.TakeStatus().refused();
  EXPECT_EQ(refused.class_(), v1::FAILURE_CLASS_INFRASTRUCTURE);
  EXPECT_EQ(refused.reason(), "WorkerDisk");
  EXPECT_EQ(refused.message(),
            "worker w1 cannot keep a record of its ranks in its --state: write /state/x: No space left on "
            "device; make room, then submit the job again");
}

TEST(AttemptTest, ASlotThatIsNotFreeRefusesIt) {
  CoreHarness core(/*num_slots=*/2);
  core.StartJob(CoreHarness::Job("a", 1));
  v1::Assignment far = CoreHarness::Job("b", 1);
  far.mutable_ranks(0)->set_slot(2);
  v1::Assignment gpu = CoreHarness::Job("d", 1);
  gpu.mutable_ranks(0)->set_slot(1);
  gpu.mutable_resolved()->mutable_resources()->set_device(v1::DEVICE_CUDA);
  core.Assign({CoreHarness::Job("a", 1), far, CoreHarness::Job("c", 1), gpu});
  EXPECT_THAT(core.Take<Check>(), IsEmpty());
  std::vector<std::string> messages;
  for (const v1::WorkerMessage& message : core.TakeMessages(v1::WorkerMessage::kStatus)) {
    messages.push_back(message.status().refused().message());
  }
  EXPECT_THAT(messages, testing::UnorderedElementsAre("rank 0 is assigned to slot 2, but this worker has 2",
                                                      "slot 0 is still in use by rank 0 of job a",
                                                      "rank 0 needs a GPU, but slot 1 is a CPU slot"));
}

TEST(AttemptTest, IdsThatWouldLeaveTheFolderAreIgnored) {
  CoreHarness core;
  core.Connect(
      {CoreHarness::Job("../x", 1), CoreHarness::Job("", 1), CoreHarness::Job("j", 1, /*attempt=*/0)});
  EXPECT_TRUE(core.state().live.empty());
}

TEST(AttemptTest, WhatIsNotListedIsStopped) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 2));
  core.Assign({});
  EXPECT_THAT(core.Take<SendToRank>(), SizeIs(2));
  core.Exits(kJob, 0, {.exit_code = 81});
  core.Advance(kDefaultGrace);
  EXPECT_THAT(core.Take<Kill>(), SizeIs(1));
  core.Exits(kJob, 1, {.signal = SIGKILL});
  EXPECT_EQ(core.TakeStatus().ranks(1).cause().reason(), "Withdrawn");
}

TEST(AttemptTest, WhatTheControllerHasLostGoesOn) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 2));
  v1::ControllerMessage message;
  *message.mutable_assignments()->add_unknown() = IdOf(kJob);
  for (int i = 0; i < 2; ++i) {
    core.FromControllerMessage(message);
  }
  EXPECT_THAT(core.Take<SendToRank>(), IsEmpty());
  EXPECT_FALSE(core.state().live.at(kJob).stop.has_value());
  core.Assign({});
  EXPECT_THAT(core.Take<SendToRank>(), SizeIs(2)) << "it is known again, and is not wanted";
}

TEST(AttemptTest, StopNowUsesTheAssignmentsGrace) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 1));
  v1::Assignment stop = CoreHarness::Job("j", 1);
  stop.set_desired(v1::DESIRED_STOP_NOW);
  stop.mutable_grace()->set_seconds(3);
  stop.set_reason("CancelledByUser");
  core.Assign({stop});
  EXPECT_EQ(NextWake(core.state()), core.now() + absl::Seconds(3));
  core.Advance(absl::Seconds(2));
  EXPECT_THAT(core.Take<Kill>(), IsEmpty());
  core.Exits(kJob, 0, {.exit_code = 81});
  const v1::AttemptStatus status = core.TakeStatus();
  EXPECT_EQ(status.ranks(0).cause().reason(), "CancelledByUser");
  EXPECT_TRUE(status.ranks(0).stop_requested());
}

TEST(AttemptTest, StopDoesNotWaitForChecks) {
  CoreHarness core;
  core.Connect({CoreHarness::Job("j", 2)});
  core.Assign({});
  EXPECT_THAT(core.Take<RecordEnd>(), SizeIs(1));
  core.Feed(Checked{.attempt = kJob});
  EXPECT_THAT(core.Take<RecordRanks>(), IsEmpty());
  core.Feed(EndRecorded{kJob});
  const v1::AttemptStatus status = core.TakeStatus();
  EXPECT_TRUE(status.ended());
  EXPECT_EQ(status.ranks(0).cause().message(), "rank 0 was stopped before it started");
  core.Feed(LookingAt{kJob, "data.train /late"});
  core.Feed(Checked{.attempt = kJob, .violations = "late"});
  EXPECT_THAT(core.Take<RecordRanks>(), IsEmpty()) << "nothing is written of what has ended";
  EXPECT_THAT(core.Take<Spawn>(), IsEmpty());
}

TEST(AttemptTest, AStopDuringRecordingSpawnsNothing) {
  CoreHarness core;
  core.Connect({CoreHarness::Job("j", 2)});
  core.Feed(Checked{.attempt = kJob});
  core.Assign({});
  EXPECT_THAT(core.Take<RecordRanks>(), SizeIs(1));
  EXPECT_THAT(core.Take<RecordEnd>(), SizeIs(1));
  core.Feed(RanksRecorded{.attempt = kJob, .problem = "no space", .reason = proto::reason::kWorkerDisk});
  core.Feed(EndRecorded{kJob});
  EXPECT_THAT(core.Take<Spawn>(), IsEmpty());
  EXPECT_FALSE(core.TakeStatus().has_refused()) << "the stop came first";
}

TEST(AttemptTest, AHangingPathRefusesTheAttemptByName) {
  CoreHarness core;
  core.Connect({CoreHarness::Job("j", 2)});
  core.Feed(LookingAt{kJob, "data.train /dead"});
  core.Advance(kPathLimit - absl::Seconds(1));
  core.Feed(LookingAt{kJob, "checkpoint.directory /dead too"});
  EXPECT_EQ(NextWake(core.state()), core.now() + kPathLimit) << "each path has its time";
  core.Advance(kPathLimit - absl::Seconds(1));
  EXPECT_THAT(core.Take<RecordEnd>(), IsEmpty());
  core.Advance(absl::Seconds(1));
  EXPECT_THAT(core.Take<RecordEnd>(), SizeIs(1));
  core.Feed(EndRecorded{kJob});
  const v1::Cause refused = core.TakeStatus().refused();
  EXPECT_EQ(refused.class_(), v1::FAILURE_CLASS_INFRASTRUCTURE);
  EXPECT_EQ(refused.reason(), proto::reason::kPathHangs);
  EXPECT_THAT(refused.message(),
              testing::StartsWith("checkpoint.directory /dead too does not answer on worker w1 (waited 2m)"));
  core.Heartbeat();
  core.Assign({CoreHarness::Job("k", 2)}, {kJob});
  core.Feed(Checked{.attempt = {.job = "k", .attempt = 1}});
  core.Feed(RanksRecorded{.attempt = {.job = "k", .attempt = 1}});
  EXPECT_THAT(core.Take<Spawn>(), SizeIs(2)) << "on the same slots";
}

TEST(AttemptTest, CheckingWorkerStillSendsHeartbeats) {
  CoreHarness core;
  core.Connect({CoreHarness::Job("j", 1)});
  core.TakeMessages(v1::WorkerMessage::kHeartbeat);
  core.Feed(Sampled{});
  EXPECT_THAT(core.TakeMessages(v1::WorkerMessage::kHeartbeat), SizeIs(1));
}

TEST(AttemptTest, ACheckThatCannotBeginRefusesItToo) {
  CoreHarness core;
  core.Connect({CoreHarness::Job("j", 1)});
  core.Advance(kPathLimit);
  EXPECT_THAT(core.TakeStatus().refused().message(),
              testing::StartsWith("no look at the job's paths could begin within 2m: "));
}

TEST(AttemptTest, NamingALargeProgramMayTakeLong) {
  CoreHarness core;
  core.Connect({CoreHarness::Job("j", 1)});
  core.Feed(LookingAt{kJob, "data.train /there"});
  core.Feed(LookingAt{kJob});
  core.Advance(2 * kPathLimit);
  core.Feed(Checked{.attempt = kJob});
  EXPECT_THAT(core.Take<RecordRanks>(), SizeIs(1));
}

TEST(AttemptTest, HangingPathIsTheMachinesFault) {
  CoreHarness core;
  core.Connect({CoreHarness::Job("j", 1)});
  core.Feed(Checked{
      .attempt = kJob, .problem = "data.train /dead is not looked at", .reason = proto::reason::kPathHangs});
  const v1::Cause refused = core.TakeStatus().refused();
  EXPECT_EQ(refused.class_(), v1::FAILURE_CLASS_INFRASTRUCTURE);
  EXPECT_EQ(refused.reason(), proto::reason::kPathHangs);
  EXPECT_EQ(refused.message(), "data.train /dead is not looked at");
}

TEST(AttemptTest, UnknownAttemptIsAnsweredAsEnded) {
  CoreHarness core;
  v1::Assignment stop = CoreHarness::Job("j", 2);
  stop.set_desired(v1::DESIRED_STOP_NOW);
  core.Connect({stop});
  EXPECT_THAT(core.Take<Check>(), IsEmpty());
  EXPECT_THAT(core.Take<RecordEnd>(), SizeIs(1));
  core.Feed(EndRecorded{kJob});
  EXPECT_TRUE(core.TakeStatus().ended());
}

TEST(AttemptTest, EndIsReportedUntilForgotten) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 1));
  core.Exits(kJob, 0, {.exit_code = 3});
  core.Feed(EndRecorded{kJob});
  core.Feed(Disconnected{});
  core.Take<SendToController>();
  // Also where the controller still lists it, since it has not committed the end.
  core.Connect({CoreHarness::Job("j", 1)});
  const std::vector<v1::WorkerMessage> messages = core.TakeMessages(v1::WorkerMessage::kHello);
  ASSERT_THAT(messages, SizeIs(1));
  ASSERT_EQ(messages[0].hello().inventory().attempts_size(), 1);
  EXPECT_TRUE(messages[0].hello().inventory().attempts(0).ended());
  EXPECT_EQ(messages[0].hello().inventory().attempts(0).ranks(0).cause().exit_code(), 3);
  EXPECT_THAT(core.Take<Check>(), IsEmpty()) << "it never runs twice";
  core.Assign({}, {kJob});
  const std::vector<Forget> forgets = core.Take<Forget>();
  ASSERT_THAT(forgets, SizeIs(1));
  EXPECT_EQ(forgets[0].attempt, kJob);
  EXPECT_TRUE(core.state().ended.empty());
}

TEST(AttemptTest, AForgetOfARunningAttemptChangesNothing) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 1));
  core.Assign({CoreHarness::Job("j", 1)}, {kJob});
  EXPECT_THAT(core.Take<Forget>(), IsEmpty());
  EXPECT_EQ(core.state().live.size(), 1u);
}

TEST(AttemptTest, StopAfterCheckpointGoesToOneRank) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 2));
  v1::Assignment stop = CoreHarness::Job("j", 2);
  stop.set_desired(v1::DESIRED_STOP_AFTER_CHECKPOINT);
  stop.set_request(7);
  stop.set_reason("Suspended");
  core.Assign({stop});
  EXPECT_THAT(core.Take<SendToRank>(), SizeIs(1));
  core.Exits(kJob, 1, {.exit_code = 75});
  core.Exits(kJob, 0, {.exit_code = 75});
  const v1::AttemptStatus status = core.TakeStatus();
  for (const v1::RankStatus& rank : status.ranks()) {
    EXPECT_EQ(rank.cause().class_(), v1::FAILURE_CLASS_REQUESTED) << rank.cause().message();
    EXPECT_EQ(rank.cause().reason(), "Suspended");
    EXPECT_TRUE(rank.stop_requested());
  }
}

TEST(AttemptTest, OneShotRequestGoesToOneRank) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 2));
  v1::Assignment snapshot = CoreHarness::Job("j", 2);
  snapshot.set_desired(v1::DESIRED_CHECKPOINT_AND_GO_ON);
  snapshot.set_request(4);
  core.Assign({snapshot});
  core.Assign({snapshot});
  const std::vector<SendToRank> sent = core.Take<SendToRank>();
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_EQ(sent[0].message.request_id(), 4u);
  v1::FromTrainer done;
  done.set_request_done(4);
  core.Say(kJob, 0, done);
  v1::AttemptStatus status = core.TakeStatus();
  EXPECT_EQ(status.request_done(), 4u);
  EXPECT_EQ(status.request_error(), "");
  done.set_request_done(5);
  done.set_request_error("no space");
  core.Say(kJob, 0, done);
  status = core.TakeStatus();
  EXPECT_EQ(status.request_done(), 5u);
  EXPECT_EQ(status.request_error(), "no space");
}

}  // namespace
}  // namespace tandem::worker
