// SPDX-License-Identifier: Apache-2.0
// An engine whose commit takes a minute, by a clock that the test moves while it is made.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "controller/engine.h"
#include "controller/store/store.h"
#include "tests/controller/engine_fixture.h"
#include "tests/platform/fake_clock.h"
#include "tests/platform/seeded_random.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::controller {
namespace {

// Worker "w" runs the one rank of "job".
class StandstillTest : public EngineTest {
 protected:
  StandstillTest() {
    Start({.commit_seconds = [this](double) {
      if (const auto then = std::exchange(during_commit_, nullptr)) {
        then();
      }
    }});
    Connect("s1");
    engine_->Post(SubmitOf("job", 1));
    v1::AttemptStatus status = StatusOf("id-job");
    AddRank(status, 0, v1::RANK_PHASE_STEPPING);
    engine_->Post(AttemptReport{.worker = "w", .status = status});
    EXPECT_EQ(StateAfter(absl::ZeroDuration()), v1::JOB_STATE_RUNNING);
  }
  ~StandstillTest() override { engine_->Stop(); }

  // A new session of the same process, whose rank steps.
  void Connect(const std::string& session) {
    v1::Hello hello = HelloOf("w", 1);
    if (session != "s1") {
      v1::AttemptStatus& status = *hello.mutable_inventory()->add_attempts();
      status = StatusOf("id-job");
      AddRank(status, 0, v1::RANK_PHASE_STEPPING);
    }
    engine_->Post(WorkerHello{.session = session, .hello = hello});
  }

  // The commit of another job, in which `during` happens, on the engine's thread.
  void CommitWhile(std::function<void()> during) {
    during_commit_ = std::move(during);
    EXPECT_TRUE(Submitted("other").ok());
    // What was posted meanwhile is decided before the test moves the clock again.
    EXPECT_TRUE(engine_->Look([](const State&) {}));
  }

  v1::JobState StateAfter(absl::Duration time) {
    clock_.Advance(time);
    engine_->Post(Tick{});
    v1::JobState out = v1::JOB_STATE_UNSPECIFIED;
    EXPECT_TRUE(engine_->Look([&](const State& state) { out = state.jobs.at("id-job").job.state(); }));
    return out;
  }

  std::function<void()> during_commit_;  // used by the engine's thread while the test waits for it
};

TEST_F(StandstillTest, WorkerReturningDuringACommitIsNotLost) {
  CommitWhile([this] {
    clock_.Advance(absl::Seconds(17));
    engine_->Post(
        WorkerDisconnected{.worker = "w", .session = "s1", .last_seen = clock_.Now() - absl::Seconds(5)});
    clock_.Advance(absl::Seconds(1));
    Connect("s2");
    clock_.Advance(absl::Seconds(40));
  });
  EXPECT_EQ(StateAfter(absl::ZeroDuration()), v1::JOB_STATE_RUNNING);
}

TEST_F(StandstillTest, AWorkerMayReturnAfterALongCommit) {
  CommitWhile([this] {
    engine_->Post(WorkerDisconnected{.worker = "w", .session = "s1", .last_seen = clock_.Now()});
    clock_.Advance(absl::Minutes(2));
  });
  EXPECT_EQ(StateAfter(absl::Seconds(29)), v1::JOB_STATE_RUNNING);
  Connect("s2");
  EXPECT_EQ(StateAfter(absl::Seconds(10)), v1::JOB_STATE_RUNNING);
}

TEST_F(StandstillTest, WorkerStayingAwayIsLost) {
  CommitWhile([this] {
    engine_->Post(WorkerDisconnected{.worker = "w", .session = "s1", .last_seen = clock_.Now()});
    clock_.Advance(absl::Minutes(2));
  });
  EXPECT_EQ(StateAfter(absl::Seconds(31)), v1::JOB_STATE_STOPPING);
}

TEST_F(StandstillTest, CommitsThatAreOnlySlowHideNoLoss) {
  engine_->Post(WorkerDisconnected{.worker = "w", .session = "s1", .last_seen = clock_.Now()});
  for (int i = 0; i < 6; ++i) {
    during_commit_ = [this] { clock_.Advance(absl::Seconds(5)); };
    EXPECT_TRUE(Submitted("slow-" + std::to_string(i)).ok());
  }
  EXPECT_EQ(StateAfter(absl::Seconds(1)), v1::JOB_STATE_STOPPING);
}

}  // namespace
}  // namespace tandem::controller
