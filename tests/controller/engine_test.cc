// SPDX-License-Identifier: Apache-2.0
#include "controller/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "controller/metrics/metrics.h"
#include "controller/store/store.h"
#include "tests/controller/engine_fixture.h"
#include "tests/platform/fake_clock.h"
#include "tests/platform/seeded_random.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::controller {
namespace {

using ::testing::HasSubstr;

// Nothing looks at the files here but the commit itself. A daemon looks at times as well
// (exhaustion_test.cc).
TEST_F(EngineTest, ADeletedStoreRefusesTheNextSubmit) {
  absl::Status fatal;
  Start({.no_room = [](const absl::Status& status) { ADD_FAILURE() << status; },
         .room_again = [] { ADD_FAILURE(); },
         .fatal = [&](const absl::Status& status) { fatal = status; }});
  EXPECT_TRUE(Submitted("kept").ok());
  std::filesystem::remove_all(directory_);
  for (const char* const name : {"lost", "after-it"}) {
    const absl::Status status = Submitted(name);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(directory_ + "/controller.db was deleted, moved or replaced"));
    EXPECT_THAT(status.message(), HasSubstr("another --state"));
  }
  engine_->Stop();
  EXPECT_TRUE(absl::IsFailedPrecondition(fatal)) << "the process is to end: " << fatal;
}

TEST_F(EngineTest, AttemptsUnknownToTheStoreAreNotStopped) {
  Start({});
  EXPECT_TRUE(Submitted("ended").ok());
  engine_->Post(Cancel{.job = "ended", .reason = "CancelledByUser", .actor = "local"});
  v1::Hello hello = HelloOf("w", 2);
  for (const auto& [job, attempt] :
       {std::pair("id-lost", 1), std::pair("id-ended", 0), std::pair("id-ended", 1)}) {
    v1::AttemptStatus status = StatusOf(job, attempt);
    AddRank(status, 0, v1::RANK_PHASE_STEPPING);
    *hello.mutable_inventory()->add_attempts() = status;
  }
  const v1::Assignments wanted = ReplyTo(WorkerHello{.session = "s", .hello = hello}).assignments;
  std::vector<std::pair<std::string, int>> unknown;
  for (const v1::AttemptId& id : wanted.unknown()) {
    unknown.emplace_back(id.job_id(), id.attempt());
  }
  EXPECT_THAT(unknown, testing::UnorderedElementsAre(std::pair("id-lost", 1), std::pair("id-ended", 1)))
      << "the store has the end of the job, but not that it had an attempt";
  EXPECT_EQ(wanted.all_size(), 0);
  EXPECT_TRUE(engine_->Look([](const State& state) {
    EXPECT_EQ(WhyNotSchedulable(state, state.workers.at("w")), "StoppingLeftovers")
        << "attempt 0, which is known, is to stop first";
  }));
  engine_->Stop();
}

// Which jobs run, what their ranks need and when they end reaches the outbox by calls: nothing looks at
// times.
class ShortJobTest : public EngineTest {
 protected:
  void StartWithMetrics() {
    Start({.reported = [this](const State& state,
                              const AttemptKey& attempt) { metrics_->Reported(state, attempt); },
           .events =
               [this](const std::vector<v1::Event>& events, const State& state) {
                 for (const v1::Event& event : events) {
                   if (IsTerminal(event.to())) {
                     metrics_->JobEnded(state.jobs.at(event.job_id()).job);
                   }
                 }
               }});
  }
  static v1::AttemptStatus StatusIn(v1::RankPhase phase) {
    v1::AttemptStatus status = StatusOf("id-job");
    v1::RankStatus& rank = AddRank(status, 0, phase);
    if (rank.has_ready()) {
      rank.mutable_ready()->set_arena_bytes(1234);
    }
    status.set_ended(phase == v1::RANK_PHASE_EXITED);
    return status;
  }
  void ExpectNeedsAfterEnd() {
    engine_->Stop();
    v1::StepReport report;
    report.set_step(1);
    report.set_attempt(1);
    metrics_->Report("id-job", "job", report);
    EXPECT_THAT(MetricsText(*metrics_),
                HasSubstr("tandem_device_memory_bytes{job_name=\"job\",kind=\"arena\"} 1234\n"));
  }

  std::unique_ptr<Metrics> metrics_ = std::make_unique<Metrics>(clock_);
};

TEST_F(ShortJobTest, NeedsOfAShortJobAreKnown) {
  StartWithMetrics();
  engine_->Post(WorkerHello{.session = "s", .hello = HelloOf("w", 1)});
  engine_->Post(SubmitOf("job", 1));
  engine_->Post(AttemptReport{.worker = "w", .status = StatusIn(v1::RANK_PHASE_SPAWNED)});
  engine_->Post(AttemptReport{.worker = "w", .status = StatusIn(v1::RANK_PHASE_EXITED)});
  ExpectNeedsAfterEnd();
}

TEST_F(ShortJobTest, NeedsAreKnownAgainAfterARestart) {
  StartWithMetrics();
  engine_->Post(WorkerHello{.session = "s", .hello = HelloOf("w", 1)});
  engine_->Post(SubmitOf("job", 1));
  engine_->Post(AttemptReport{.worker = "w", .status = StatusIn(v1::RANK_PHASE_READY)});
  engine_->Stop();
  metrics_ = std::make_unique<Metrics>(clock_);
  StartWithMetrics();
  v1::Hello hello = HelloOf("w", 1);
  *hello.mutable_inventory()->add_attempts() = StatusIn(v1::RANK_PHASE_EXITED);
  engine_->Post(WorkerHello{.session = "t", .hello = hello});
  ExpectNeedsAfterEnd();
}

// An engine whose store has no room: in this process no file can grow.
class NoRoomTest : public EngineTest {
 protected:
  NoRoomTest() {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    Start({.events =
               [this](const std::vector<v1::Event>& events, const State&) {
                 for (const v1::Event& event : events) {
                   num_saved_ += event.has_checkpoint() ? 1 : 0;
                 }
               },
           .not_stored =
               [this](const std::vector<v1::Event>& events) {
                 for (const v1::Event& event : events) {
                   workers_not_stored_.push_back(event.worker().worker_id());
                 }
               }});
    engine_->Post(WorkerHello{.session = "s", .hello = HelloOf("w", 1)});
    EXPECT_TRUE(Submitted("job").ok());
  }
  ~NoRoomTest() override {
    MakeRoom();
    engine_->Stop();
  }

  void TakeRoom() {
    rlimit limit = before_;
    limit.rlim_cur = 1;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  void MakeRoom() { EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0); }

  // That the job's rank has saved `step`, in the notice of this number.
  void Notice(uint64_t number, int64_t step) {
    CheckpointNoticed noticed = Noticed(number);
    noticed.worker = "w";
    noticed.notice.mutable_committed()->set_step(step);
    engine_->Post(noticed, [this](const Engine::Reply&) { ++num_acknowledged_; });
  }
  // What was posted before has been decided, and decided again.
  void Turn() {
    engine_->Post(Tick{});
    for (int i = 0; i < 2; ++i) {  // events are let out behind the first
      EXPECT_TRUE(engine_->Look([](const State&) {}));
    }
  }

  rlimit before_{};
  int num_saved_ = 0;                            // changed by the writer's thread; read after Turn()
  int num_acknowledged_ = 0;                     // likewise
  std::vector<std::string> workers_not_stored_;  // likewise
};

TEST_F(NoRoomTest, RepeatedNoticeReplacesTheWaitingOne) {
  TakeRoom();
  for (int i = 0; i < 3; ++i) {
    Notice(1, 50);
    Turn();
  }
  EXPECT_EQ(num_acknowledged_, 0);
  MakeRoom();
  Turn();
  EXPECT_EQ(num_acknowledged_, 1) << "the others are not held any more";
  EXPECT_EQ(num_saved_, 1);
}

TEST_F(NoRoomTest, NewestThousandNoticesPerWorkerWait) {
  TakeRoom();
  for (int i = 1; i <= 1003; ++i) {
    Notice(i, i);
  }
  Turn();
  EXPECT_EQ(num_acknowledged_, 3) << "its worker has dropped them, too";
  MakeRoom();
  Turn();
  EXPECT_EQ(num_acknowledged_, 1003);
  EXPECT_EQ(num_saved_, 1000);
}

// It is not decided again, and without it the loss would not be heard of.
TEST_F(NoRoomTest, ThatAWorkerHasGoneIsToldOnce) {
  TakeRoom();
  engine_->Post(WorkerDisconnected{.worker = "w", .session = "s", .last_seen = clock_.Now()});
  Turn();
  EXPECT_THAT(workers_not_stored_, testing::ElementsAre("w"));
  MakeRoom();
  Turn();
  EXPECT_THAT(workers_not_stored_, testing::ElementsAre("w"));
}

TEST_F(NoRoomTest, WhileNothingIsCommittedItIsNoticedToo) {
  TakeRoom();
  Turn();
  EXPECT_TRUE(engine_->StoreRoom().ok()) << "a try is a commit, which is not made all the time";
  clock_.Advance(absl::Seconds(30));
  Turn();
  EXPECT_TRUE(absl::IsResourceExhausted(engine_->StoreRoom())) << engine_->StoreRoom();
  MakeRoom();
  Turn();
  EXPECT_TRUE(engine_->StoreRoom().ok());
}

}  // namespace
}  // namespace tandem::controller
