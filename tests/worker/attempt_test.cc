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

using AttemptTest = CoreTest;

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

TEST_F(AttemptTest, IsCheckedThenRecordedThenSpawnedThenReported) {
  core_.Connect({CoreHarness::Job("j", 2)});
  EXPECT_THAT(core_.Take<Check>(), SizeIs(1));
  EXPECT_THAT(core_.Take<RecordRanks>(), IsEmpty());
  core_.Feed(Checked{.attempt = kJob});
  const RecordRanks records = core_.TakeOne<RecordRanks>();
  EXPECT_EQ(records.attempt, kJob);
  EXPECT_EQ(records.store_id, "store");
  EXPECT_THAT(records.ranks, testing::ElementsAre(0, 1));
  EXPECT_THAT(core_.Take<Spawn>(), IsEmpty()) << "not before it is on disk";
  EXPECT_THAT(core_.TakeMessages(v1::WorkerMessage::kStatus), IsEmpty())
      << "neither accepted nor refused yet";
  core_.Feed(RanksRecorded{.attempt = kJob});
  const std::vector<Spawn> spawns = core_.Take<Spawn>();
  ASSERT_THAT(spawns, SizeIs(2));
  EXPECT_EQ(spawns[1].rank.rank, 1);
  EXPECT_EQ(spawns[1].start.rank(), 1);
  EXPECT_EQ(spawns[1].start.assignment().slots_size(), 2);
  EXPECT_EQ(spawns[1].start.build(), "b");
  EXPECT_EQ(core_.TakeStatus().ranks(0).phase(), v1::RANK_PHASE_SPAWNED);
  core_.Feed(RankSpawned{.rank = {kJob, 1}, .process = {.pid = 77}});
  EXPECT_EQ(core_.TakeStatus().ranks(1).pid(), 77);
  v1::FromTrainer ready;
  ready.mutable_ready()->set_program_digest("d");
  core_.Say(kJob, 1, ready);
  const v1::AttemptStatus status = core_.TakeStatus();
  EXPECT_EQ(status.ranks(1).phase(), v1::RANK_PHASE_READY);
  EXPECT_EQ(status.ranks(1).ready().program_digest(), "d");
}

TEST_F(AttemptTest, TheSameAssignmentAgainChangesNothing) {
  core_.StartJob(CoreHarness::Job("j", 2));
  core_.Assign({CoreHarness::Job("j", 2)});
  EXPECT_THAT(core_.Take<Check>(), IsEmpty());
  EXPECT_THAT(core_.Take<Spawn>(), IsEmpty());
  EXPECT_THAT(core_.Take<SendToRank>(), IsEmpty());
}

TEST_F(AttemptTest, EndsWithoutCauseIfAllRanksSucceed) {
  core_.StartJob(CoreHarness::Job("j", 2));
  for (const int rank : {0, 1}) {
    core_.Say(kJob, rank, Finished());
    core_.Exits(kJob, rank, {});
  }
  EXPECT_FALSE(core_.TakeStatus().ended()) << "not before the end is on disk";
  EXPECT_TRUE(core_.TakeOne<RecordEnd>().status.ended());
  core_.Feed(EndRecorded{kJob});
  const v1::AttemptStatus status = core_.TakeStatus();
  EXPECT_TRUE(status.ended());
  for (const v1::RankStatus& rank : status.ranks()) {
    EXPECT_TRUE(rank.finished() && rank.exited() && !rank.stop_requested() && !rank.has_cause());
  }
}

TEST_F(AttemptTest, ReportsTimesOfItsRanks) {
  core_.StartJob(CoreHarness::Job("j", 1));
  const absl::Time start = core_.now();
  core_.Advance(absl::Seconds(1));
  v1::FromTrainer ready;
  ready.mutable_ready();
  core_.Say(kJob, 0, ready);
  core_.Advance(absl::Seconds(1));
  core_.Say(kJob, 0, Finished());
  core_.Advance(absl::Seconds(1));
  core_.Exits(kJob, 0, {});
  core_.Advance(absl::Minutes(5));
  core_.Feed(EndRecorded{kJob});
  const v1::RankStatus rank = core_.TakeStatus().ranks(0);
  const auto since_start = [&](const google::protobuf::Timestamp& time) {
    return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos()) - start;
  };
  EXPECT_EQ(since_start(rank.ready_at()), absl::Seconds(1));
  EXPECT_EQ(since_start(rank.finished_at()), absl::Seconds(2));
  EXPECT_EQ(since_start(rank.exited_at()), absl::Seconds(3));
}

TEST_F(AttemptTest, OneDeadRankStopsTheOthers) {
  core_.StartJob(CoreHarness::Job("j", 3));
  core_.Exits(kJob, 1, {.signal = SIGKILL});
  v1::AttemptStatus status = core_.TakeStatus();
  EXPECT_EQ(status.ranks(1).cause().message(),
            "rank 1 was killed by signal 9 (SIGKILL) in step 37, after forward of microbatch 2");
  EXPECT_EQ(status.ranks(1).cause().last_instruction(), "op 3 mb 2");
  EXPECT_FALSE(status.ranks(1).stop_requested());
  EXPECT_TRUE(status.ranks(0).stop_requested());
  const std::vector<SendToRank> stops = core_.Take<SendToRank>();
  ASSERT_THAT(stops, SizeIs(2));
  EXPECT_EQ(stops[0].rank.rank, 0);
  EXPECT_EQ(stops[0].message.request(), v1::DESIRED_STOP_NOW);
  EXPECT_EQ(stops[1].rank.rank, 2);

  EXPECT_EQ(NextWake(core_.state()), core_.now() + kDefaultGrace);
  core_.Exits(kJob, 0, {.exit_code = 81});
  core_.Advance(kDefaultGrace);
  EXPECT_EQ(core_.TakeOne<Kill>().rank.rank, 2);
  core_.Exits(kJob, 2, {.signal = SIGKILL});
  core_.Feed(EndRecorded{kJob});
  status = core_.TakeStatus();
  EXPECT_TRUE(status.ended());
  EXPECT_EQ(status.ranks(0).cause().class_(), v1::FAILURE_CLASS_REQUESTED);
  EXPECT_EQ(status.ranks(2).cause().class_(), v1::FAILURE_CLASS_REQUESTED);
  EXPECT_EQ(status.ranks(1).cause().reason(), "RankKilled");
}

TEST_F(AttemptTest, LocalPeersDeathIsNotOurStop) {
  core_.StartJob(CoreHarness::Job("j", 2));
  // Rank 1 is dead; rank 0 feels it before the daemon sees it.
  core_.Say(kJob, 0, Failed(v1::FAILURE_CLASS_PEER_LOST, "rank 0 lost rank 1"));
  EXPECT_THAT(core_.Take<SendToRank>(), IsEmpty()) << "a pause first";
  core_.Advance(absl::Milliseconds(20));
  core_.Exits(kJob, 1, {.signal = SIGSEGV});
  EXPECT_EQ(core_.TakeStatus().ranks(1).cause().reason(), "RankKilled");
  EXPECT_THAT(core_.Take<SendToRank>(), SizeIs(1));
}

// Its peers on other workers feel a crash before it is reaped here, and the controller's stop is as quick.
TEST_F(AttemptTest, CrashIsNotBlamedOnTheStop) {
  core_.StartJob(CoreHarness::Job("j", 1));
  core_.Assign({});
  EXPECT_THAT(core_.Take<SendToRank>(), SizeIs(1)) << "asked to stop";
  core_.Advance(absl::Milliseconds(5));
  core_.Exits(kJob, 0, {.signal = SIGSEGV});
  const v1::Cause cause = core_.TakeStatus().ranks(0).cause();
  EXPECT_EQ(cause.reason(), "RankKilled");
  EXPECT_EQ(cause.signal(), SIGSEGV);
  EXPECT_TRUE(cause.after_stop());
}

TEST_F(AttemptTest, PeerLostElsewhereStopsLocalRanks) {
  core_.StartJob(CoreHarness::Job("j", 2));
  core_.Say(kJob, 0, Failed(v1::FAILURE_CLASS_PEER_LOST, "rank 0 lost rank 7"));
  EXPECT_EQ(core_.TakeStatus().ranks(0).cause().message(), "rank 0 lost rank 7");
  EXPECT_EQ(NextWake(core_.state()), core_.now() + kPeerLostPause);
  core_.Advance(kPeerLostPause);
  EXPECT_THAT(core_.Take<SendToRank>(), SizeIs(2));
}

TEST_F(AttemptTest, ARankThatFailedAndStaysIsKilled) {
  core_.StartJob(CoreHarness::Job("j", 1));
  core_.Say(kJob, 0, Failed(v1::FAILURE_CLASS_USER, "bad data"));
  core_.Advance(kDefaultGrace);
  EXPECT_THAT(core_.Take<Kill>(), SizeIs(1));
  core_.Exits(kJob, 0, {.signal = SIGKILL});
  EXPECT_EQ(core_.TakeStatus().ranks(0).cause().message(), "bad data");
}

TEST_F(AttemptTest, UnstartableRankFailsTheAttempt) {
  core_.Connect({CoreHarness::Job("j", 2)});
  core_.Feed(Checked{.attempt = kJob});
  core_.Feed(RanksRecorded{.attempt = kJob});
  core_.Feed(RankSpawned{.rank = {kJob, 0}, .process = {.pid = 77}});
  core_.Feed(SpawnFailed{{kJob, 1}, "fork: Resource temporarily unavailable"});
  EXPECT_THAT(core_.Take<SendToRank>(), SizeIs(1));
  const v1::Cause cause = core_.TakeStatus().ranks(1).cause();
  EXPECT_EQ(cause.reason(), "SpawnFailed");
  EXPECT_EQ(cause.message(), "rank 1 could not be started: fork: Resource temporarily unavailable");
}

TEST_F(AttemptTest, UnfitFilesAreTheUsersError) {
  core_.Connect({CoreHarness::Job("j", 2)});
  core_.Feed(Checked{.attempt = kJob, .violations = "data.train: /none is not there"});
  EXPECT_THAT(core_.Take<Spawn>(), IsEmpty());
  EXPECT_THAT(core_.Take<RecordEnd>(), SizeIs(1));
  core_.Feed(EndRecorded{kJob});
  const v1::AttemptStatus status = core_.TakeStatus();
  EXPECT_TRUE(status.ended());
  EXPECT_EQ(status.refused().class_(), v1::FAILURE_CLASS_USER);
  EXPECT_EQ(status.refused().message(), "data.train: /none is not there");
  EXPECT_EQ(status.refused().worker(), "w1");
}

TEST_F(AttemptTest, UnwritableRecordIsTheMachinesFault) {
  core_.Connect({CoreHarness::Job("j", 2)});
  core_.Feed(Checked{.attempt = kJob});
  core_.Feed(RanksRecorded{.attempt = kJob,
                           .problem = "write /state/x: No space left on device; make room",
                           .reason = proto::ReasonCode("WorkerDisk")});
  EXPECT_THAT(core_.Take<Spawn>(), IsEmpty());
  const v1::Cause refused = core_.TakeStatus().refused();
  EXPECT_EQ(refused.class_(), v1::FAILURE_CLASS_INFRASTRUCTURE);
  EXPECT_EQ(refused.reason(), "WorkerDisk");
  EXPECT_EQ(refused.message(),
            "worker w1 cannot keep a record of its ranks in its --state: write /state/x: No space left on "
            "device; make room, then submit the job again");
}

TEST_F(AttemptTest, ASlotThatIsNotFreeRefusesIt) {
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

TEST_F(AttemptTest, IdsThatWouldLeaveTheFolderAreIgnored) {
  core_.Connect(
      {CoreHarness::Job("../x", 1), CoreHarness::Job("", 1), CoreHarness::Job("j", 1, /*attempt=*/0)});
  EXPECT_TRUE(core_.state().live.empty());
}

TEST_F(AttemptTest, WhatIsNotListedIsStopped) {
  core_.StartJob(CoreHarness::Job("j", 2));
  core_.Assign({});
  EXPECT_THAT(core_.Take<SendToRank>(), SizeIs(2));
  core_.Exits(kJob, 0, {.exit_code = 81});
  core_.Advance(kDefaultGrace);
  EXPECT_THAT(core_.Take<Kill>(), SizeIs(1));
  core_.Exits(kJob, 1, {.signal = SIGKILL});
  EXPECT_EQ(core_.TakeStatus().ranks(1).cause().reason(), "Withdrawn");
}

TEST_F(AttemptTest, WhatTheControllerHasLostGoesOn) {
  core_.StartJob(CoreHarness::Job("j", 2));
  v1::ControllerMessage message;
  *message.mutable_assignments()->add_unknown() = IdOf(kJob);
  for (int i = 0; i < 2; ++i) {
    core_.FromControllerMessage(message);
  }
  EXPECT_THAT(core_.Take<SendToRank>(), IsEmpty());
  EXPECT_FALSE(core_.state().live.at(kJob).stop.has_value());
  core_.Assign({});
  EXPECT_THAT(core_.Take<SendToRank>(), SizeIs(2)) << "it is known again, and is not wanted";
}

TEST_F(AttemptTest, StopNowUsesTheAssignmentsGrace) {
  core_.StartJob(CoreHarness::Job("j", 1));
  v1::Assignment stop = CoreHarness::Job("j", 1);
  stop.set_desired(v1::DESIRED_STOP_NOW);
  stop.mutable_grace()->set_seconds(3);
  stop.set_reason("CancelledByUser");
  core_.Assign({stop});
  EXPECT_EQ(NextWake(core_.state()), core_.now() + absl::Seconds(3));
  core_.Advance(absl::Seconds(2));
  EXPECT_THAT(core_.Take<Kill>(), IsEmpty());
  core_.Exits(kJob, 0, {.exit_code = 81});
  const v1::AttemptStatus status = core_.TakeStatus();
  EXPECT_EQ(status.ranks(0).cause().reason(), "CancelledByUser");
  EXPECT_TRUE(status.ranks(0).stop_requested());
}

TEST_F(AttemptTest, StopDoesNotWaitForChecks) {
  core_.Connect({CoreHarness::Job("j", 2)});
  core_.Assign({});
  EXPECT_THAT(core_.Take<RecordEnd>(), SizeIs(1));
  core_.Feed(Checked{.attempt = kJob});
  EXPECT_THAT(core_.Take<RecordRanks>(), IsEmpty());
  core_.Feed(EndRecorded{kJob});
  const v1::AttemptStatus status = core_.TakeStatus();
  EXPECT_TRUE(status.ended());
  EXPECT_EQ(status.ranks(0).cause().message(), "rank 0 was stopped before it started");
  core_.Feed(LookingAt{kJob, "data.train /late"});
  core_.Feed(Checked{.attempt = kJob, .violations = "late"});
  EXPECT_THAT(core_.Take<RecordRanks>(), IsEmpty()) << "nothing is written of what has ended";
  EXPECT_THAT(core_.Take<Spawn>(), IsEmpty());
}

TEST_F(AttemptTest, AStopDuringRecordingSpawnsNothing) {
  core_.Connect({CoreHarness::Job("j", 2)});
  core_.Feed(Checked{.attempt = kJob});
  core_.Assign({});
  EXPECT_THAT(core_.Take<RecordRanks>(), SizeIs(1));
  EXPECT_THAT(core_.Take<RecordEnd>(), SizeIs(1));
  core_.Feed(
      RanksRecorded{.attempt = kJob, .problem = "no space", .reason = proto::ReasonCode("WorkerDisk")});
  core_.Feed(EndRecorded{kJob});
  EXPECT_THAT(core_.Take<Spawn>(), IsEmpty());
  EXPECT_FALSE(core_.TakeStatus().has_refused()) << "the stop came first";
}

TEST_F(AttemptTest, AHangingPathRefusesTheAttemptByName) {
  core_.Connect({CoreHarness::Job("j", 2)});
  core_.Feed(LookingAt{kJob, "data.train /dead"});
  core_.Advance(kPathLimit - absl::Seconds(1));
  core_.Feed(LookingAt{kJob, "checkpoint.directory /dead too"});
  EXPECT_EQ(NextWake(core_.state()), core_.now() + kPathLimit) << "each path has its time";
  core_.Advance(kPathLimit - absl::Seconds(1));
  EXPECT_THAT(core_.Take<RecordEnd>(), IsEmpty());
  core_.Advance(absl::Seconds(1));
  EXPECT_THAT(core_.Take<RecordEnd>(), SizeIs(1));
  core_.Feed(EndRecorded{kJob});
  const v1::Cause refused = core_.TakeStatus().refused();
  EXPECT_EQ(refused.class_(), v1::FAILURE_CLASS_INFRASTRUCTURE);
  EXPECT_EQ(refused.reason(), proto::ReasonCode("PathHangs"));
  EXPECT_THAT(refused.message(),
              testing::StartsWith("checkpoint.directory /dead too does not answer on worker w1 (waited 2m)"));
  core_.Heartbeat();
  core_.Assign({CoreHarness::Job("k", 2)}, {kJob});
  core_.Feed(Checked{.attempt = {.job = "k", .attempt = 1}});
  core_.Feed(RanksRecorded{.attempt = {.job = "k", .attempt = 1}});
  EXPECT_THAT(core_.Take<Spawn>(), SizeIs(2)) << "on the same slots";
}

TEST_F(AttemptTest, CheckingWorkerStillSendsHeartbeats) {
  core_.Connect({CoreHarness::Job("j", 1)});
  core_.TakeMessages(v1::WorkerMessage::kHeartbeat);
  core_.Feed(Sampled{});
  EXPECT_THAT(core_.TakeMessages(v1::WorkerMessage::kHeartbeat), SizeIs(1));
}

TEST_F(AttemptTest, ACheckThatCannotBeginRefusesItToo) {
  core_.Connect({CoreHarness::Job("j", 1)});
  core_.Advance(kPathLimit);
  EXPECT_THAT(core_.TakeStatus().refused().message(),
              testing::StartsWith("no look at the job's paths could begin within 2m: "));
}

TEST_F(AttemptTest, NamingALargeProgramMayTakeLong) {
  core_.Connect({CoreHarness::Job("j", 1)});
  core_.Feed(LookingAt{kJob, "data.train /there"});
  core_.Feed(LookingAt{kJob});
  core_.Advance(2 * kPathLimit);
  core_.Feed(Checked{.attempt = kJob});
  EXPECT_THAT(core_.Take<RecordRanks>(), SizeIs(1));
}

TEST_F(AttemptTest, HangingPathIsTheMachinesFault) {
  core_.Connect({CoreHarness::Job("j", 1)});
  core_.Feed(Checked{.attempt = kJob,
                     .problem = "data.train /dead is not looked at",
                     .reason = proto::ReasonCode("PathHangs")});
  const v1::Cause refused = core_.TakeStatus().refused();
  EXPECT_EQ(refused.class_(), v1::FAILURE_CLASS_INFRASTRUCTURE);
  EXPECT_EQ(refused.reason(), proto::ReasonCode("PathHangs"));
  EXPECT_EQ(refused.message(), "data.train /dead is not looked at");
}

TEST_F(AttemptTest, UnknownAttemptIsAnsweredAsEnded) {
  v1::Assignment stop = CoreHarness::Job("j", 2);
  stop.set_desired(v1::DESIRED_STOP_NOW);
  core_.Connect({stop});
  EXPECT_THAT(core_.Take<Check>(), IsEmpty());
  EXPECT_THAT(core_.Take<RecordEnd>(), SizeIs(1));
  core_.Feed(EndRecorded{kJob});
  EXPECT_TRUE(core_.TakeStatus().ended());
}

TEST_F(AttemptTest, EndIsReportedUntilForgotten) {
  core_.StartJob(CoreHarness::Job("j", 1));
  core_.Exits(kJob, 0, {.exit_code = 3});
  core_.Feed(EndRecorded{kJob});
  core_.Feed(Disconnected{});
  core_.Take<SendToController>();
  // Also where the controller still lists it, since it has not committed the end.
  core_.Connect({CoreHarness::Job("j", 1)});
  const v1::WorkerMessage message = core_.TakeMessage(v1::WorkerMessage::kHello);
  ASSERT_EQ(message.hello().inventory().attempts_size(), 1);
  EXPECT_TRUE(message.hello().inventory().attempts(0).ended());
  EXPECT_EQ(message.hello().inventory().attempts(0).ranks(0).cause().exit_code(), 3);
  EXPECT_THAT(core_.Take<Check>(), IsEmpty()) << "it never runs twice";
  core_.Assign({}, {kJob});
  EXPECT_EQ(core_.TakeOne<Forget>().attempt, kJob);
  EXPECT_TRUE(core_.state().ended.empty());
}

TEST_F(AttemptTest, AForgetOfARunningAttemptChangesNothing) {
  core_.StartJob(CoreHarness::Job("j", 1));
  core_.Assign({CoreHarness::Job("j", 1)}, {kJob});
  EXPECT_THAT(core_.Take<Forget>(), IsEmpty());
  EXPECT_EQ(core_.state().live.size(), 1u);
}

TEST_F(AttemptTest, StopAfterCheckpointGoesToOneRank) {
  core_.StartJob(CoreHarness::Job("j", 2));
  v1::Assignment stop = CoreHarness::Job("j", 2);
  stop.set_desired(v1::DESIRED_STOP_AFTER_CHECKPOINT);
  stop.set_request(7);
  stop.set_reason("Suspended");
  core_.Assign({stop});
  EXPECT_THAT(core_.Take<SendToRank>(), SizeIs(1));
  core_.Exits(kJob, 1, {.exit_code = 75});
  core_.Exits(kJob, 0, {.exit_code = 75});
  const v1::AttemptStatus status = core_.TakeStatus();
  for (const v1::RankStatus& rank : status.ranks()) {
    EXPECT_EQ(rank.cause().class_(), v1::FAILURE_CLASS_REQUESTED) << rank.cause().message();
    EXPECT_EQ(rank.cause().reason(), "Suspended");
    EXPECT_TRUE(rank.stop_requested());
  }
}

TEST_F(AttemptTest, OneShotRequestGoesToOneRank) {
  core_.StartJob(CoreHarness::Job("j", 2));
  v1::Assignment snapshot = CoreHarness::Job("j", 2);
  snapshot.set_desired(v1::DESIRED_CHECKPOINT_AND_GO_ON);
  snapshot.set_request(4);
  core_.Assign({snapshot});
  core_.Assign({snapshot});
  EXPECT_EQ(core_.TakeOne<SendToRank>().message.request_id(), 4u);
  v1::FromTrainer done;
  done.set_request_done(4);
  core_.Say(kJob, 0, done);
  v1::AttemptStatus status = core_.TakeStatus();
  EXPECT_EQ(status.request_done(), 4u);
  EXPECT_EQ(status.request_error(), "");
  done.set_request_done(5);
  done.set_request_error("no space");
  core_.Say(kJob, 0, done);
  status = core_.TakeStatus();
  EXPECT_EQ(status.request_done(), 5u);
  EXPECT_EQ(status.request_error(), "no space");
}

}  // namespace
}  // namespace tandem::worker
