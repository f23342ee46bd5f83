// SPDX-License-Identifier: Apache-2.0
// What the core says to the controller, and when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/protocol.h"
#include "tests/worker/core_harness.h"
#include "worker/step.h"

namespace tandem::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using RendezvousTest = CoreTest;
using SessionTest = CoreTest;

v1::FromTrainer Set(const std::string& key, const std::string& value) {
  v1::FromTrainer message;
  message.mutable_set()->set_key(key);
  message.mutable_set()->set_value(value);
  return message;
}

v1::FromTrainer Get(const std::string& key) {
  v1::FromTrainer message;
  message.mutable_get()->set_key(key);
  return message;
}

v1::FromTrainer SavedStep(int64_t step) {
  v1::FromTrainer message;
  message.mutable_checkpoint()->set_step(step);
  return message;
}

v1::ControllerMessage Value(const std::string& key, const std::string& value) {
  v1::ControllerMessage message;
  *message.mutable_value()->mutable_id() = IdOf(kJob);
  message.mutable_value()->set_key(key);
  message.mutable_value()->set_value(value);
  return message;
}

TEST_F(SessionTest, HelloWithTheInventoryComesFirst) {
  core_.Feed(Connected{.data_address = "10.0.0.7"});
  const SendToController sent = core_.TakeOne<SendToController>();
  const v1::Hello& hello = sent.message.hello();
  EXPECT_EQ(sent.message.seq(), 1u);
  EXPECT_EQ(hello.worker_id(), "w1");
  EXPECT_EQ(hello.incarnation(), 5u);
  EXPECT_EQ(hello.inventory().slots_size(), 4);
  EXPECT_EQ(hello.inventory().data_address(), "10.0.0.7");
  EXPECT_EQ(hello.protocol_max(), proto::kProtocol);
}

TEST_F(SessionTest, MessagesAreCountedFrom1InEverySession) {
  core_.StartJob(CoreHarness::Job("j", 1));
  core_.Take<SendToController>();
  core_.Reconnect({CoreHarness::Job("j", 1)});
  core_.Say(kJob, 0, Set("a", "1"));
  core_.Say(kJob, 0, Set("b", "2"));
  uint64_t expected = 0;
  for (const SendToController& command : core_.Take<SendToController>()) {
    EXPECT_EQ(command.message.seq(), ++expected);
  }
  EXPECT_GE(expected, 3u);
}

TEST_F(SessionTest, ASilentSessionIsDropped) {
  core_.Feed(Connected{});
  core_.Advance(kLongestSilence);
  core_.Feed(Sampled{});
  EXPECT_THAT(core_.Take<DropSession>(), IsEmpty());
  core_.Advance(absl::Seconds(1));
  core_.Feed(Sampled{});
  EXPECT_THAT(core_.Take<DropSession>(), SizeIs(1)) << "no welcome came";
  core_.Reconnect();
  for (int second = 0; second < 20; ++second) {
    core_.Advance(absl::Seconds(1));
    core_.Heartbeat();
    core_.Feed(Sampled{});
  }
  EXPECT_THAT(core_.Take<DropSession>(), IsEmpty());
  core_.Advance(kLongestSilence + absl::Seconds(1));
  core_.Feed(Sampled{});
  EXPECT_THAT(core_.TakeOne<DropSession>().why, HasSubstr("has not been heard for 15s"));
}

TEST_F(SessionTest, IdleWorkersSendHeartbeatsAndOthersStatus) {
  core_.Connect();
  core_.Take<SendToController>();
  core_.Feed(Sampled{});
  EXPECT_THAT(core_.TakeMessages(v1::WorkerMessage::kHeartbeat), SizeIs(1));
  core_.StartJob(CoreHarness::Job("j", 1));
  PageSample sample = CoreHarness::Stepping(10);
  core_.Feed(Sampled{{{{kJob, 0}, sample}}});
  core_.Advance(absl::Seconds(2));
  core_.Take<SendToController>();
  sample.step = 14;
  sample.since_progress = absl::Milliseconds(1500);
  sample.collectives = {5, 6};
  core_.Feed(Sampled{{{{kJob, 0}, sample}}});
  const v1::RankStatus rank = core_.TakeStatus().ranks(0);
  EXPECT_EQ(rank.phase(), v1::RANK_PHASE_STEPPING);
  EXPECT_EQ(rank.step(), 14);
  EXPECT_DOUBLE_EQ(rank.step_seconds(), 0.5);
  EXPECT_EQ(rank.since_progress().seconds(), 1);
  EXPECT_EQ(rank.since_progress().nanos(), 500'000'000);
  EXPECT_THAT(rank.collective_seq(), ElementsAre(5, 6));
}

TEST_F(SessionTest, AgeCountsFromTheLastProgressOrPhase) {
  core_.StartJob(CoreHarness::Job("j", 1));
  const auto look = [&](const PageSample& sample) {
    core_.Heartbeat();
    core_.Feed(Sampled{{{{kJob, 0}, sample}}});
    return core_.TakeStatus().ranks(0);
  };
  const auto age = [](const v1::RankStatus& rank) {
    return absl::Seconds(rank.since_progress().seconds()) + absl::Nanoseconds(rank.since_progress().nanos());
  };
  PageSample sample{.phase = v1::RANK_PHASE_LOADING};
  EXPECT_EQ(age(look(sample)), absl::ZeroDuration()) << "seen for the first time";
  core_.Advance(absl::Seconds(4));
  EXPECT_EQ(age(look(sample)), absl::Seconds(4));
  sample.phase = v1::RANK_PHASE_READY;
  EXPECT_EQ(age(look(sample)), absl::ZeroDuration()) << "a phase has no time of its own on the page";
  core_.Advance(absl::Seconds(1));
  sample = CoreHarness::Stepping(1);
  sample.since_progress = absl::Milliseconds(300);
  v1::RankStatus rank = look(sample);
  EXPECT_EQ(age(rank), absl::Milliseconds(300)) << "an instruction has";
  EXPECT_EQ(rank.whereabouts(), "in step 1, after forward of microbatch 2");
  EXPECT_FALSE(rank.process_stopped());
  core_.Advance(absl::Seconds(20));
  sample.since_progress += absl::Seconds(20);
  sample.stopped = true;
  rank = look(sample);
  EXPECT_EQ(age(rank), absl::Milliseconds(20'300));
  EXPECT_TRUE(rank.process_stopped());
  core_.Advance(absl::Milliseconds(500));
  core_.Say(kJob, 0, Set("key", "a"));
  core_.Assign({CoreHarness::Job("j", 1)});
  v1::FromTrainer ready;
  ready.mutable_ready();
  core_.Say(kJob, 0, ready);
  EXPECT_EQ(age(core_.TakeStatus().ranks(0)), absl::Milliseconds(20'800)) << "as of the message";
}

TEST_F(SessionTest, NextSessionResendsItsState) {
  core_.StartJob(CoreHarness::Job("j", 2));
  core_.Say(kJob, 0, Set("rank-0", "a"));
  core_.Say(kJob, 0, Get("rank-7"));
  core_.FromControllerMessage(Value("rank-8", "h"));
  core_.Feed(Disconnected{});
  core_.Say(kJob, 1, Set("rank-1", "b"));
  core_.Take<SendToController>();
  core_.Connect({CoreHarness::Job("j", 2)});
  const std::vector<SendToController> sent = core_.Take<SendToController>();
  ASSERT_THAT(sent, SizeIs(4)) << "of values only what its own ranks have set";
  EXPECT_EQ(sent[0].message.hello().inventory().attempts_size(), 1);
  EXPECT_EQ(sent[1].message.set().key(), "rank-0");
  EXPECT_EQ(sent[1].message.set().id().job_id(), "j");
  EXPECT_EQ(sent[1].message.set().rank(), 0);
  EXPECT_EQ(sent[2].message.set().value(), "b");
  EXPECT_EQ(sent[3].message.get().key(), "rank-7") << "asked again";
  EXPECT_THAT(core_.Take<Spawn>(), IsEmpty());
  EXPECT_THAT(core_.Take<SendToRank>(), IsEmpty());
}

// 8 ranks of a job of 2,000 set more than a message holds, and the worker could not return.
TEST_F(SessionTest, LargeJobsHelloFits) {
  v1::Assignment job = CoreHarness::Job("j", 8);
  core_.StartJob(job);
  for (int rank = 0; rank < 8; ++rank) {
    for (const char* group : {"report/", "heartbeat/"}) {
      core_.Say(kJob, rank, Set(absl::StrCat(group, rank), std::string(size_t{136} * 2000, 'v')));
    }
  }
  core_.Feed(Disconnected{});
  core_.Take<SendToController>();
  core_.Connect({job});
  const std::vector<SendToController> again = core_.Take<SendToController>();
  ASSERT_THAT(again, SizeIs(17));
  for (const SendToController& sent : again) {
    EXPECT_LT(sent.message.ByteSizeLong(), 1U << 20);
  }
  core_.Feed(Disconnected{});
  job.set_connected(true);
  core_.Connect({job});
  EXPECT_THAT(core_.Take<SendToController>(), SizeIs(1)) << "every rank of the job is connected";
}

TEST_F(RendezvousTest, FirstSetValueStays) {
  core_.StartJob(CoreHarness::Job("j", 2));
  core_.Say(kJob, 0, Set("k", "first"));
  core_.Say(kJob, 1, Set("k", "second"));
  const v1::WorkerMessage set = core_.TakeMessage(v1::WorkerMessage::kSet);
  EXPECT_EQ(set.set().value(), "first");
  EXPECT_EQ(set.set().id().job_id(), "j");
  core_.Say(kJob, 1, Get("k"));
  EXPECT_EQ(core_.TakeOne<SendToRank>().message.value().value(), "first");
}

TEST_F(RendezvousTest, SharedGetIsRequestedOnce) {
  core_.StartJob(CoreHarness::Job("j", 3));
  for (const int rank : {2, 0, 1}) {
    core_.Say(kJob, rank, Get("far"));
  }
  const v1::WorkerMessage get = core_.TakeMessage(v1::WorkerMessage::kGet);
  EXPECT_EQ(get.get().rank(), 2);
  core_.FromControllerMessage(Value("far", "v"));
  std::vector<int> ranks;
  for (const SendToRank& answer : core_.Take<SendToRank>()) {
    EXPECT_EQ(answer.message.value().value(), "v");
    ranks.push_back(answer.rank.rank);
  }
  EXPECT_THAT(ranks, ElementsAre(0, 1, 2));
  core_.Say(kJob, 1, Get("far"));
  EXPECT_THAT(core_.Take<SendToRank>(), SizeIs(1)) << "known now";
  EXPECT_THAT(core_.TakeMessages(v1::WorkerMessage::kGet), IsEmpty());
}

TEST_F(RendezvousTest, ALocalSetAnswersAnEarlierGet) {
  core_.StartJob(CoreHarness::Job("j", 2));
  core_.Feed(Disconnected{});
  core_.Say(kJob, 0, Get("k"));
  EXPECT_THAT(core_.Take<SendToRank>(), IsEmpty());
  core_.Say(kJob, 1, Set("k", "v"));
  EXPECT_THAT(core_.Take<SendToRank>(), SizeIs(1));
}

TEST_F(SessionTest, AnyMessageRenewsTheOrphanDeadline) {
  core_.Connect();
  EXPECT_EQ(core_.TakeOne<RenewDeadline>().after, absl::Seconds(480));
  core_.Heartbeat();
  EXPECT_THAT(core_.Take<RenewDeadline>(), SizeIs(1));
  core_.Advance(absl::Seconds(1));
  EXPECT_THAT(core_.Take<RenewDeadline>(), IsEmpty());
}

TEST_F(SessionTest, WithoutOrphanTimeoutThereIsNoDeadline) {
  core_.Feed(Connected{});
  v1::ControllerMessage message;
  message.mutable_welcome()->set_protocol(proto::kProtocol);
  core_.FromControllerMessage(message);
  EXPECT_EQ(core_.Take<RenewDeadline>().at(0).after, absl::InfiniteDuration());
}

TEST_F(SessionTest, CheckpointIsSentOncePerConnection) {
  core_.StartJob(CoreHarness::Job("j", 1));
  core_.Say(kJob, 0, SavedStep(50));
  v1::WorkerMessage notice = core_.TakeMessage(v1::WorkerMessage::kCheckpoint);
  EXPECT_EQ(notice.checkpoint().committed().step(), 50);
  core_.Advance(absl::Minutes(1));
  EXPECT_THAT(core_.TakeMessages(v1::WorkerMessage::kCheckpoint), IsEmpty()) << "it may wait for room";
  core_.Reconnect({CoreHarness::Job("j", 1)});
  notice = core_.TakeMessage(v1::WorkerMessage::kCheckpoint);
  v1::ControllerMessage ack;
  ack.set_ack(notice.seq() - 1);
  core_.FromControllerMessage(ack);
  EXPECT_THAT(core_.state().notices, SizeIs(1));
  ack.set_ack(notice.seq());
  core_.FromControllerMessage(ack);
  EXPECT_THAT(core_.state().notices, IsEmpty());
  core_.Reconnect({CoreHarness::Job("j", 1)});
  EXPECT_THAT(core_.TakeMessages(v1::WorkerMessage::kCheckpoint), IsEmpty());
}

TEST_F(SessionTest, InventoryHasTheLastCheckpoint) {
  core_.StartJob(CoreHarness::Job("j", 1));
  core_.Feed(Disconnected{});
  core_.Say(kJob, 0, SavedStep(50));
  core_.Exits(kJob, 0, {.exit_code = 0});
  core_.Feed(EndRecorded{kJob});
  core_.Feed(Connected{});
  const v1::WorkerMessage hello = core_.TakeMessage(v1::WorkerMessage::kHello);
  const v1::Inventory& inventory = hello.hello().inventory();
  ASSERT_THAT(inventory.attempts(), SizeIs(1));
  EXPECT_TRUE(inventory.attempts(0).ended());
  ASSERT_THAT(inventory.notices(), SizeIs(1));
  EXPECT_EQ(inventory.notices(0).id().job_id(), "j");
  EXPECT_EQ(inventory.notices(0).committed().step(), 50);
  EXPECT_EQ(inventory.notices(0).number(), 1u);
}

TEST_F(SessionTest, EndFollowsItsCheckpoint) {
  core_.StartJob(CoreHarness::Job("j", 1));
  core_.Feed(Disconnected{});
  core_.Feed(Connected{});
  core_.Take<SendToController>();
  core_.Say(kJob, 0, SavedStep(50));
  core_.Exits(kJob, 0, {.exit_code = 0});
  core_.Feed(EndRecorded{kJob});
  EXPECT_THAT(core_.Take<SendToController>(), IsEmpty()) << "the controller has not welcomed the worker";
  EXPECT_GT(NextWake(core_.state()), core_.now()) << "there is nothing to do until it has";
  v1::ControllerMessage welcome;
  welcome.mutable_welcome()->set_store_id("store");
  welcome.mutable_welcome()->set_term(1);
  welcome.mutable_welcome()->set_protocol(proto::kProtocol);
  *welcome.mutable_welcome()->mutable_assignments()->add_all() = CoreHarness::Job("j", 1);
  core_.FromControllerMessage(welcome);
  const std::vector<SendToController> sent = core_.Take<SendToController>();
  ASSERT_THAT(sent, SizeIs(2));
  EXPECT_EQ(sent[0].message.checkpoint().committed().step(), 50);
  EXPECT_TRUE(sent[1].message.status().ended());
}

TEST_F(SessionTest, TrainingWarningIsResentUntilAcknowledged) {
  core_.StartJob(CoreHarness::Job("j", 1));
  v1::FromTrainer said;
  said.mutable_training_warning()->set_step(7);
  said.mutable_training_warning()->set_message("not finite");
  core_.Say(kJob, 0, said);
  core_.Reconnect({CoreHarness::Job("j", 1)});
  const std::vector<v1::WorkerMessage> notices = core_.TakeMessages(v1::WorkerMessage::kCheckpoint);
  ASSERT_FALSE(notices.empty());
  const v1::CheckpointNotice& notice = notices.back().checkpoint();
  EXPECT_EQ(notice.training().step(), 7);
  EXPECT_EQ(notice.training().message(), "not finite");
  EXPECT_FALSE(notice.has_warning());
  EXPECT_EQ(notice.number(), 1u);
}

TEST_F(SessionTest, CheckpointWarningsAreNumberedInOrder) {
  core_.StartJob(CoreHarness::Job("j", 1));
  v1::FromTrainer failed;
  failed.mutable_checkpoint_warning()->set_problem(v1::CHECKPOINT_PROBLEM_SAVE_FAILED);
  failed.mutable_checkpoint_warning()->set_step(50);
  core_.Say(kJob, 0, failed);
  core_.Say(kJob, 0, failed);  // another one of the same step is not the same one
  std::vector<v1::WorkerMessage> notices = core_.TakeMessages(v1::WorkerMessage::kCheckpoint);
  ASSERT_THAT(notices, SizeIs(2));
  EXPECT_EQ(notices[0].checkpoint().warning().step(), 50);
  EXPECT_FALSE(notices[0].checkpoint().has_committed());
  EXPECT_EQ(notices[0].checkpoint().id().job_id(), "j");
  EXPECT_EQ(notices[0].checkpoint().number(), 1u);
  EXPECT_EQ(notices[1].checkpoint().number(), 2u);
  core_.Reconnect({CoreHarness::Job("j", 1)});
  notices = core_.TakeMessages(v1::WorkerMessage::kCheckpoint);
  ASSERT_THAT(notices, SizeIs(2));
  EXPECT_EQ(notices[0].checkpoint().number(), 1u) << "what is resent keeps its number";
  v1::ControllerMessage ack;
  ack.set_ack(notices[0].seq());
  core_.FromControllerMessage(ack);
  ASSERT_THAT(core_.state().notices, SizeIs(1));
  EXPECT_EQ(core_.state().notices[0].number, 2u);
}

TEST_F(SessionTest, ControllerOfAnOlderTermIsIgnored) {
  core_.StartJob(CoreHarness::Job("j", 1));
  core_.Reconnect({CoreHarness::Job("j", 1)}, /*term=*/7);
  core_.Reconnect({}, /*term=*/6);
  EXPECT_THAT(core_.TakeOne<DropSession>().why, HasSubstr("term 6 is older than term 7"));
  core_.Assign({});
  EXPECT_THAT(core_.Take<SendToRank>(), IsEmpty()) << "its ranks go on";
}

TEST_F(SessionTest, ControllerOfAnotherStoreIsNotObeyed) {
  core_.Connect({}, 1, "mine");
  core_.Reconnect({CoreHarness::Job("j", 1)}, 1, "other");
  core_.StartJob(CoreHarness::Job("j", 1));
  EXPECT_THAT(core_.Take<DropSession>(), IsEmpty())
      << "nothing ran here, so any controller may have the worker";
  core_.Reconnect({}, 2, "third");
  EXPECT_THAT(core_.TakeOne<DropSession>().why, AllOf(HasSubstr("store third"), HasSubstr("store other")));
  core_.Advance(absl::Seconds(5));
  EXPECT_THAT(core_.Take<SendToRank>(), IsEmpty()) << "its ranks go on, though the third does not list them";
  core_.Feed(Disconnected{});
  core_.Exits(kJob, 0, {.exit_code = 0});
  core_.Feed(EndRecorded{kJob});
  core_.Connect({}, 2, "third");
  EXPECT_THAT(core_.Take<DropSession>(), IsEmpty());
}

// Whoever starts a second controller at the address of the first takes nothing from it.
TEST_F(SessionTest, AnotherStoreCannotClaimAnIdleWorkersAttempts) {
  core_.Connect({}, 1, "mine");
  core_.StartJob(CoreHarness::Job("j", 1));
  core_.Feed(Disconnected{});
  core_.Feed(Connected{});
  const v1::WorkerMessage hello = core_.TakeMessage(v1::WorkerMessage::kHello);
  EXPECT_EQ(hello.hello().store_id(), "mine");
  EXPECT_EQ(hello.hello().highest_term(), 1);
  core_.Feed(Disconnected{});
  core_.Say(kJob, 0, SavedStep(50));
  core_.Exits(kJob, 0, {.exit_code = 0});
  core_.Feed(EndRecorded{kJob});

  core_.Connect({}, /*term=*/9, "other");
  core_.Assign({}, {kJob});
  EXPECT_THAT(core_.Take<Forget>(), IsEmpty());
  core_.Advance(absl::Minutes(1));
  EXPECT_THAT(core_.TakeMessages(v1::WorkerMessage::kCheckpoint), IsEmpty());
  core_.Feed(Disconnected{});

  core_.Connect({}, /*term=*/2, "mine");
  EXPECT_THAT(core_.Take<DropSession>(), IsEmpty()) << "the terms of two stores cannot be compared";
  const v1::WorkerMessage notice = core_.TakeMessage(v1::WorkerMessage::kCheckpoint);
  EXPECT_EQ(notice.checkpoint().committed().step(), 50);
  core_.Assign({}, {kJob});
  EXPECT_THAT(core_.Take<Forget>(), SizeIs(1));
}

TEST_F(SessionTest, RefusalIsRetriedOrEndsTheWorker) {
  core_.Feed(Connected{});
  v1::ControllerMessage message;
  message.mutable_refused()->set_reason("Busy");
  message.mutable_refused()->set_message("come back");
  core_.FromControllerMessage(message);
  EXPECT_THAT(core_.Take<DropSession>(), SizeIs(1));
  EXPECT_THAT(core_.Take<ExitProcess>(), IsEmpty());
  core_.Feed(Disconnected{});
  core_.Feed(Connected{});
  message.mutable_refused()->set_reason("DuplicateWorker");
  message.mutable_refused()->set_message("w1 is taken");
  message.mutable_refused()->set_final(true);
  core_.FromControllerMessage(message);
  EXPECT_EQ(core_.TakeOne<ExitProcess>().problem,
            "the controller refuses this worker: DuplicateWorker: w1 is taken");
}

TEST_F(SessionTest, UploadsAreStartedOnce) {
  core_.Connect();
  v1::ControllerMessage message;
  message.mutable_upload()->set_upload("u");
  core_.FromControllerMessage(message);
  core_.Advance(absl::Seconds(1));
  EXPECT_THAT(core_.Take<StartUpload>(), SizeIs(1));
}

}  // namespace
}  // namespace tandem::worker
