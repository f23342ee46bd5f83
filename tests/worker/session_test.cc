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

const AttemptKey kJob{.job = "j", .attempt = 1};

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

TEST(SessionTest, HelloWithTheInventoryComesFirst) {
  CoreHarness core;
  core.Feed(Connected{.data_address = "10.0.0.7"});
  const std::vector<SendToController> sent = core.Take<SendToController>();
  ASSERT_THAT(sent, SizeIs(1));
  const v1::Hello& hello = sent[0].message.hello();
  EXPECT_EQ(sent[0].message.seq(), 1u);
  EXPECT_EQ(hello.worker_id(), "w1");
  EXPECT_EQ(hello.incarnation(), 5u);
  EXPECT_EQ(hello.inventory().slots_size(), 4);
  EXPECT_EQ(hello.inventory().data_address(), "10.0.0.7");
  EXPECT_EQ(hello.protocol_max(), proto::kProtocol);
}

TEST(SessionTest, MessagesAreCountedFrom1InEverySession) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 1));
  core.Take<SendToController>();
  core.Feed(Disconnected{});
  core.Connect({CoreHarness::Job("j", 1)});
  core.Say(kJob, 0, Set("a", "1"));
  core.Say(kJob, 0, Set("b", "2"));
  uint64_t expected = 0;
  for (const SendToController& command : core.Take<SendToController>()) {
    EXPECT_EQ(command.message.seq(), ++expected);
  }
  EXPECT_GE(expected, 3u);
}

TEST(SessionTest, ASilentSessionIsDropped) {
  CoreHarness core;
  core.Feed(Connected{});
  core.Advance(kLongestSilence);
  core.Feed(Sampled{});
  EXPECT_THAT(core.Take<DropSession>(), IsEmpty());
  core.Advance(absl::Seconds(1));
  core.Feed(Sampled{});
  EXPECT_THAT(core.Take<DropSession>(), SizeIs(1)) << "no welcome came";
  core.Feed(Disconnected{});
  core.Connect();
  for (int second = 0; second < 20; ++second) {
    core.Advance(absl::Seconds(1));
    core.Heartbeat();
    core.Feed(Sampled{});
  }
  EXPECT_THAT(core.Take<DropSession>(), IsEmpty());
  core.Advance(kLongestSilence + absl::Seconds(1));
  core.Feed(Sampled{});
  const std::vector<DropSession> dropped = core.Take<DropSession>();
  ASSERT_THAT(dropped, SizeIs(1));
  EXPECT_THAT(dropped[0].why, HasSubstr("has not been heard for 15s"));
}

TEST(SessionTest, IdleWorkersSendHeartbeatsAndOthersStatus) {
  CoreHarness core;
  core.Connect();
  core.Take<SendToController>();
  core.Feed(Sampled{});
  EXPECT_THAT(core.TakeMessages(v1::WorkerMessage::kHeartbeat), SizeIs(1));
  core.StartJob(CoreHarness::Job("j", 1));
  PageSample sample = CoreHarness::Stepping(10);
  core.Feed(Sampled{{{{kJob, 0}, sample}}});
  core.Advance(absl::Seconds(2));
  core.Take<SendToController>();
  sample.step = 14;
  sample.since_progress = absl::Milliseconds(1500);
  sample.collectives = {5, 6};
  core.Feed(Sampled{{{{kJob, 0}, sample}}});
  const v1::RankStatus rank = core.TakeStatus().ranks(0);
  EXPECT_EQ(rank.phase(), v1::RANK_PHASE_STEPPING);
  EXPECT_EQ(rank.step(), 14);
  EXPECT_DOUBLE_EQ(rank.step_seconds(), 0.5);
  EXPECT_EQ(rank.since_progress().seconds(), 1);
  EXPECT_EQ(rank.since_progress().nanos(), 500'000'000);
  EXPECT_THAT(rank.collective_seq(), ElementsAre(5, 6));
}

TEST(SessionTest, AgeCountsFromTheLastProgressOrPhase) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 1));
  const auto look = [&](const PageSample& sample) {
    core.Heartbeat();
    core.Feed(Sampled{{{{kJob, 0}, sample}}});
    return core.TakeStatus().ranks(0);
  };
  const auto age = [](const v1::RankStatus& rank) {
    return absl::Seconds(rank.since_progress().seconds()) + absl::Nanoseconds(rank.since_progress().nanos());
  };
  PageSample sample{.phase = v1::RANK_PHASE_LOADING};
  EXPECT_EQ(age(look(sample)), absl::ZeroDuration()) << "seen for the first time";
  core.Advance(absl::Seconds(4));
  EXPECT_EQ(age(look(sample)), absl::Seconds(4));
  sample.phase = v1::RANK_PHASE_READY;
  EXPECT_EQ(age(look(sample)), absl::ZeroDuration()) << "a phase has no time of its own on the page";
  core.Advance(absl::Seconds(1));
  sample = CoreHarness::Stepping(1);
  sample.since_progress = absl::Milliseconds(300);
  v1::RankStatus rank = look(sample);
  EXPECT_EQ(age(rank), absl::Milliseconds(300)) << "an instruction has";
  EXPECT_EQ(rank.whereabouts(), "in step 1, after forward of microbatch 2");
  EXPECT_FALSE(rank.process_stopped());
  core.Advance(absl::Seconds(20));
  sample.since_progress += absl::Seconds(20);
  sample.stopped = true;
  rank = look(sample);
  EXPECT_EQ(age(rank), absl::Milliseconds(20'300));
  EXPECT_TRUE(rank.process_stopped());
  core.Advance(absl::Milliseconds(500));
  core.Say(kJob, 0, Set("key", "a"));
  core.Assign({CoreHarness::Job("j", 1)});
  v1::FromTrainer ready;
  ready.mutable_ready();
  core.Say(kJob, 0, ready);
  EXPECT_EQ(age(core.TakeStatus().ranks(0)), absl::Milliseconds(20'800)) << "as of the message";
}

TEST(SessionTest, NextSessionResendsItsState) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 2));
  core.Say(kJob, 0, Set("rank-0", "a"));
  core.Say(kJob, 0, Get("rank-7"));
  core.FromControllerMessage(Value("rank-8", "h"));
  core.Feed(Disconnected{});
  core.Say(kJob, 1, Set("rank-1", "b"));
  core.Take<SendToController>();
  core.Connect({CoreHarness::Job("j", 2)});
  const std::vector<SendToController> sent = core.Take<SendToController>();
  ASSERT_THAT(sent, SizeIs(4)) << "of values only what its own ranks have set";
  EXPECT_EQ(sent[0].message.hello().inventory().attempts_size(), 1);
  EXPECT_EQ(sent[1].message.set().key(), "rank-0");
  EXPECT_EQ(sent[1].message.set().id().job_id(), "j");
  EXPECT_EQ(sent[1].message.set().rank(), 0);
  EXPECT_EQ(sent[2].message.set().value(), "b");
  EXPECT_EQ(sent[3].message.get().key(), "rank-7") << "asked again";
  EXPECT_THAT(core.Take<Spawn>(), IsEmpty());
  EXPECT_THAT(core.Take<SendToRank>(), IsEmpty());
}

// 8 ranks of a job of 2,000 set more than a message holds, and the worker could not return.
TEST(SessionTest, LargeJobsHelloFits) {
  CoreHarness core;
  v1::Assignment job = CoreHarness::Job("j", 8);
  core.StartJob(job);
  for (int rank = 0; rank < 8; ++rank) {
    for (const char* group : {"report/", "heartbeat/"}) {
      core.Say(kJob, rank, Set(absl::StrCat(group, rank), std::string(size_t{136} * 2000, 'v')));
    }
  }
  core.Feed(Disconnected{});
  core.Take<SendToController>();
  core.Connect({job});
  const std::vector<SendToController> again = core.Take<SendToController>();
  ASSERT_THAT(again, SizeIs(17));
  for (const SendToController& sent : again) {
    EXPECT_LT(sent.message.ByteSizeLong(), 1U << 20);
  }
  core.Feed(Disconnected{});
  job.set_connected(true);
  core.Connect({job});
  EXPECT_THAT(core.Take<SendToController>(), SizeIs(1)) << "every rank of the job is connected";
}

TEST(RendezvousTest, FirstSetValueStays) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 2));
  core.Say(kJob, 0, Set("k", "first"));
  core.Say(kJob, 1, Set("k", "second"));
  const std::vector<v1::WorkerMessage> sets = core.TakeMessages(v1::WorkerMessage::kSet);
  ASSERT_THAT(sets, SizeIs(1));
  EXPECT_EQ(sets[0].set().value(), "first");
  EXPECT_EQ(sets[0].set().id().job_id(), "j");
  core.Say(kJob, 1, Get("k"));
  const std::vector<SendToRank> answers = core.Take<SendToRank>();
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(answers[0].message.value().value(), "first");
}

TEST(RendezvousTest, SharedGetIsRequestedOnce) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 3));
  for (const int rank : {2, 0, 1}) {
    core.Say(kJob, rank, Get("far"));
  }
  const std::vector<v1::WorkerMessage> gets = core.TakeMessages(v1::WorkerMessage::kGet);
  ASSERT_THAT(gets, SizeIs(1));
  EXPECT_EQ(gets[0].get().rank(), 2);
  core.FromControllerMessage(Value("far", "v"));
  std::vector<int> ranks;
  for (const SendToRank& answer : core.Take<SendToRank>()) {
    EXPECT_EQ(answer.message.value().value(), "v");
    ranks.push_back(answer.rank.rank);
  }
  EXPECT_THAT(ranks, ElementsAre(0, 1, 2));
  core.Say(kJob, 1, Get("far"));
  EXPECT_THAT(core.Take<SendToRank>(), SizeIs(1)) << "known now";
  EXPECT_THAT(core.TakeMessages(v1::WorkerMessage::kGet), IsEmpty());
}

TEST(RendezvousTest, ALocalSetAnswersAnEarlierGet) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 2));
  core.Feed(Disconnected{});
  core.Say(kJob, 0, Get("k"));
  EXPECT_THAT(core.Take<SendToRank>(), IsEmpty());
  core.Say(kJob, 1, Set("k", "v"));
  EXPECT_THAT(core.Take<SendToRank>(), SizeIs(1));
}

TEST(SessionTest, AnyMessageRenewsTheOrphanDeadline) {
  CoreHarness core;
  core.Connect();
  std::vector<RenewDeadline> renewals = core.Take<RenewDeadline>();
  ASSERT_THAT(renewals, SizeIs(1));
  EXPECT_EQ(renewals[0].after, absl::Seconds(480));
  v1::ControllerMessage heartbeat;
  heartbeat.mutable_heartbeat();
  core.FromControllerMessage(heartbeat);
  EXPECT_THAT(core.Take<RenewDeadline>(), SizeIs(1));
  core.Advance(absl::Seconds(1));
  EXPECT_THAT(core.Take<RenewDeadline>(), IsEmpty());
}

TEST(SessionTest, WithoutOrphanTimeoutThereIsNoDeadline) {
  CoreHarness core;
  core.Feed(Connected{});
  v1::ControllerMessage message;
  message.mutable_welcome()->set_protocol(proto::kProtocol);
  core.FromControllerMessage(message);
  EXPECT_EQ(core.Take<RenewDeadline>().at(0).after, absl::InfiniteDuration());
}

TEST(SessionTest, CheckpointIsSentOncePerConnection) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 1));
  core.Say(kJob, 0, SavedStep(50));
  std::vector<v1::WorkerMessage> notices = core.TakeMessages(v1::WorkerMessage::kCheckpoint);
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].checkpoint().committed().step(), 50);
  core.Advance(absl::Minutes(1));
  EXPECT_THAT(core.TakeMessages(v1::WorkerMessage::kCheckpoint), IsEmpty()) << "it may wait for room";
  core.Feed(Disconnected{});
  core.Connect({CoreHarness::Job("j", 1)});
  notices = core.TakeMessages(v1::WorkerMessage::kCheckpoint);
  ASSERT_THAT(notices, SizeIs(1));
  v1::ControllerMessage ack;
  ack.set_ack(notices[0].seq() - 1);
  core.FromControllerMessage(ack);
  EXPECT_THAT(core.state().notices, SizeIs(1));
  ack.set_ack(notices[0].seq());
  core.FromControllerMessage(ack);
  EXPECT_THAT(core.state().notices, IsEmpty());
  core.Feed(Disconnected{});
  core.Connect({CoreHarness::Job("j", 1)});
  EXPECT_THAT(core.TakeMessages(v1::WorkerMessage::kCheckpoint), IsEmpty());
}

TEST(SessionTest, InventoryHasTheLastCheckpoint) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 1));
  core.Feed(Disconnected{});
  core.Say(kJob, 0, SavedStep(50));
  core.Exits(kJob, 0, {.exit_code = 0});
  core.Feed(EndRecorded{kJob});
  core.Feed(Connected{});
  const std::vector<v1::WorkerMessage> hellos = core.TakeMessages(v1::WorkerMessage::kHello);
  ASSERT_THAT(hellos, SizeIs(1));
  const v1::Inventory& inventory = hellos[0].hello().inventory();
  ASSERT_THAT(inventory.attempts(), SizeIs(1));
  EXPECT_TRUE(inventory.attempts(0).ended());
  ASSERT_THAT(inventory.notices(), SizeIs(1));
  EXPECT_EQ(inventory.notices(0).id().job_id(), "j");
  EXPECT_EQ(inventory.notices(0).committed().step(), 50);
  EXPECT_EQ(inventory.notices(0).number(), 1u);
}

TEST(SessionTest, EndFollowsItsCheckpoint) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 1));
  core.Feed(Disconnected{});
  core.Feed(Connected{});
  core.Take<SendToController>();
  core.Say(kJob, 0, SavedStep(50));
  core.Exits(kJob, 0, {.exit_code = 0});
  core.Feed(EndRecorded{kJob});
  EXPECT_THAT(core.Take<SendToController>(), IsEmpty()) << "the controller has not welcomed the worker";
  EXPECT_GT(NextWake(core.state()), core.now()) << "there is nothing to do until it has";
  v1::ControllerMessage welcome;
  welcome.mutable_welcome()->set_store_id("store");
  welcome.mutable_welcome()->set_term(1);
  welcome.mutable_welcome()->set_protocol(proto::kProtocol);
  *welcome.mutable_welcome()->mutable_assignments()->add_all() = CoreHarness::Job("j", 1);
  core.FromControllerMessage(welcome);
  const std::vector<SendToController> sent = core.Take<SendToController>();
  ASSERT_THAT(sent, SizeIs(2));
  EXPECT_EQ(sent[0].message.checkpoint().committed().step(), 50);
  EXPECT_TRUE(sent[1].message.status().ended());
}

TEST(SessionTest, TrainingWarningIsResentUntilAcknowledged) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 1));
  v1::FromTrainer said;
  said.mutable_training_warning()->set_step(7);
  said.mutable_training_warning()->set_message("not finite");
  core.Say(kJob, 0, said);
  core.Feed(Disconnected{});
  core.Connect({CoreHarness::Job("j", 1)});
  const std::vector<v1::WorkerMessage> notices = core.TakeMessages(v1::WorkerMessage::kCheckpoint);
  ASSERT_FALSE(notices.empty());
  EXPECT_EQ(notices.back().checkpoint().training().step(), 7);
  EXPECT_EQ(notices.back().checkpoint().training().message(), "not finite");
  EXPECT_FALSE(notices.back().checkpoint().has_warning());
  EXPECT_EQ(notices.back().checkpoint().number(), 1u);
}

TEST(SessionTest, CheckpointWarningsAreNumberedInOrder) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 1));
  v1::FromTrainer failed;
  failed.mutable_checkpoint_warning()->set_problem(v1::CHECKPOINT_PROBLEM_SAVE_FAILED);
  failed.mutable_checkpoint_warning()->set_step(50);
  core.Say(kJob, 0, failed);
  core.Say(kJob, 0, failed);  // another one of the same step is not the same one
  std::vector<v1::WorkerMessage> notices = core.TakeMessages(v1::WorkerMessage::kCheckpoint);
  ASSERT_THAT(notices, SizeIs(2));
  EXPECT_EQ(notices[0].checkpoint().warning().step(), 50);
  EXPECT_FALSE(notices[0].checkpoint().has_committed());
  EXPECT_EQ(notices[0].checkpoint().id().job_id(), "j");
  EXPECT_EQ(notices[0].checkpoint().number(), 1u);
  EXPECT_EQ(notices[1].checkpoint().number(), 2u);
  core.Feed(Disconnected{});
  core.Connect({CoreHarness::Job("j", 1)});
  notices = core.TakeMessages(v1::WorkerMessage::kCheckpoint);
  ASSERT_THAT(notices, SizeIs(2));
  EXPECT_EQ(notices[0].checkpoint().number(), 1u) << "what is resent keeps its number";
  v1::ControllerMessage ack;
  ack.set_ack(notices[0].seq());
  core.FromControllerMessage(ack);
  ASSERT_THAT(core.state().notices, SizeIs(1));
  EXPECT_EQ(core.state().notices[0].number, 2u);
}

TEST(SessionTest, ControllerOfAnOlderTermIsIgnored) {
  CoreHarness core;
  core.StartJob(CoreHarness::Job("j", 1));
  core.Feed(Disconnected{});
  core.Connect({CoreHarness::Job("j", 1)}, /*term=*/7);
  core.Feed(Disconnected{});
  core.Connect({}, /*term=*/6);
  const std::vector<DropSession> drops = core.Take<DropSession>();
  ASSERT_THAT(drops, SizeIs(1));
  EXPECT_THAT(drops[0].why, HasSubstr("term 6 is older than term 7"));
  core.Assign({});
  EXPECT_THAT(core.Take<SendToRank>(), IsEmpty()) << "its ranks go on";
}

TEST(SessionTest, ControllerOfAnotherStoreIsNotObeyed) {
  CoreHarness core;
  core.Connect({}, 1, "mine");
  core.Feed(Disconnected{});
  core.Connect({CoreHarness::Job("j", 1)}, 1, "other");
  core.StartJob(CoreHarness::Job("j", 1));
  EXPECT_THAT(core.Take<DropSession>(), IsEmpty())
      << "nothing ran here, so any controller may have the worker";
  core.Feed(Disconnected{});
  core.Connect({}, 2, "third");
  const std::vector<DropSession> drops = core.Take<DropSession>();
  ASSERT_THAT(drops, SizeIs(1));
  EXPECT_THAT(drops[0].why, AllOf(HasSubstr("store third"), HasSubstr("store other")));
  core.Advance(absl::Seconds(5));
  EXPECT_THAT(core.Take<SendToRank>(), IsEmpty()) << "its ranks go on, though the third does not list them";
  core.Feed(Disconnected{});
  core.Exits(kJob, 0, {.exit_code = 0});
  core.Feed(EndRecorded{kJob});
  core.Connect({}, 2, "third");
  EXPECT_THAT(core.Take<DropSession>(), IsEmpty());
}

// Whoever starts a second controller at the address of the first takes nothing from it.
TEST(SessionTest, AnotherStoreCannotClaimAnIdleWorkersAttempts) {
  CoreHarness core;
  core.Connect({}, 1, "mine");
  core.StartJob(CoreHarness::Job("j", 1));
  core.Feed(Disconnected{});
  core.Feed(Connected{});
  const std::vector<v1::WorkerMessage> hellos = core.TakeMessages(v1::WorkerMessage::kHello);
  ASSERT_THAT(hellos, SizeIs(1));
  EXPECT_EQ(hellos[0].hello().store_id(), "mine");
  EXPECT_EQ(hellos[0].hello().highest_term(), 1);
  core.Feed(Disconnected{});
  core.Say(kJob, 0, SavedStep(50));
  core.Exits(kJob, 0, {.exit_code = 0});
  core.Feed(EndRecorded{kJob});

  core.Connect({}, /*term=*/9, "other");
  core.Assign({}, {kJob});
  EXPECT_THAT(core.Take<Forget>(), IsEmpty());
  core.Advance(absl::Minutes(1));
  EXPECT_THAT(core.TakeMessages(v1::WorkerMessage::kCheckpoint), IsEmpty());
  core.Feed(Disconnected{});

  core.Connect({}, /*term=*/2, "mine");
  EXPECT_THAT(core.Take<DropSession>(), IsEmpty()) << "the terms of two stores cannot be compared";
  const std::vector<v1::WorkerMessage> notices = core.TakeMessages(v1::WorkerMessage::kCheckpoint);
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].checkpoint().committed().step(), 50);
  core.Assign({}, {kJob});
  EXPECT_THAT(core.Take<Forget>(), SizeIs(1));
}

TEST(SessionTest, RefusalIsRetriedOrEndsTheWorker) {
  CoreHarness core;
  core.Feed(Connected{});
  v1::ControllerMessage message;
  message.mutable_refused()->set_reason("Busy");
  message.mutable_refused()->set_message("come back");
  core.FromControllerMessage(message);
  EXPECT_THAT(core.Take<DropSession>(), SizeIs(1));
  EXPECT_THAT(core.Take<ExitProcess>(), IsEmpty());
  core.Feed(Disconnected{});
  core.Feed(Connected{});
  message.mutable_refused()->set_reason("DuplicateWorker");
  message.mutable_refused()->set_message("w1 is taken");
  message.mutable_refused()->set_final(true);
  core.FromControllerMessage(message);
  const std::vector<ExitProcess> exits = core.Take<ExitProcess>();
  ASSERT_THAT(exits, SizeIs(1));
  EXPECT_EQ(exits[0].problem, "the controller refuses this worker: DuplicateWorker: w1 is taken");
}

TEST(SessionTest, UploadsAreStartedOnce) {
  CoreHarness core;
  core.Connect();
  v1::ControllerMessage message;
  message.mutable_upload()->set_upload("u");
  core.FromControllerMessage(message);
  core.Advance(absl::Seconds(1));
  EXPECT_THAT(core.Take<StartUpload>(), SizeIs(1));
}

}  // namespace
}  // namespace tandem::worker
