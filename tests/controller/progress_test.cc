// SPDX-License-Identifier: Apache-2.0
#include "controller/core/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "controller/metrics/progress_board.h"
#include "proto/time.h"
#include "tests/controller/job_builder.h"
#include "tests/platform/fake_clock.h"

namespace tandem::controller {
namespace {

// What rank 0 on worker a or rank 1 on worker b says of itself.
struct Word {
  v1::RankPhase phase = v1::RANK_PHASE_STEPPING;
  int64_t step = 7;
  uint64_t collectives = 40;
  double age = 0.5;  // seconds
  double step_seconds = 0.1;
  bool stopped = false;
};

class ProgressTest : public ::testing::Test {
 protected:
  ProgressTest() { driver_.Run(v1::JOB_STATE_RUNNING); }

  void Say(int rank, const Word& word) {
    v1::AttemptStatus status = StatusOf("id-job");
    v1::RankStatus& said = AddRank(status, rank, word.phase);
    said.set_step(word.step);
    said.set_step_seconds(word.step_seconds);
    said.add_collective_seq(word.collectives);
    said.set_whereabouts("in step " + std::to_string(word.step));
    said.set_process_stopped(word.stopped);
    *said.mutable_since_progress() = proto::ToProto(absl::Seconds(word.age));
    driver_.Say(rank == 0 ? "a" : "b", status);
  }

  std::optional<v1::Progress> Progress() const {
    return ProgressOf(driver_.state, driver_.Job(), driver_.now);
  }

  // Who is behind when they say this.
  int Behind(const Word& zero, const Word& one) {
    Say(0, zero);
    Say(1, one);
    return Progress()->rank();
  }

  Driver driver_;
};

TEST_F(ProgressTest, StoppedThenEarlierThenOlderRanksAreBehind) {
  EXPECT_EQ(Behind({.age = 20}, {.age = 0.1, .stopped = true}), 1);
  EXPECT_EQ(Behind({.step = 8, .age = 20}, {.step = 7, .age = 0.1}), 1);
  EXPECT_EQ(Behind({.collectives = 41, .age = 20}, {.collectives = 40, .age = 0.1}), 1);
  EXPECT_EQ(Behind({.age = 0.1}, {.age = 0.2}), 1);
  EXPECT_EQ(Behind({.age = 0.2}, {.age = 0.1}), 0);
}

TEST_F(ProgressTest, RankInTheEarlierPhaseIsBehind) {
  EXPECT_EQ(Behind({.phase = v1::RANK_PHASE_READY, .step = 0, .collectives = 0, .age = 20},
                   {.phase = v1::RANK_PHASE_LOADING, .step = 0, .collectives = 0, .age = 1}),
            1);
}

TEST_F(ProgressTest, NamesRankSlotAndAge) {
  Say(0, {.age = 0.1});
  Say(1, {.age = 0.4});
  driver_.now += absl::Seconds(3);
  const std::optional<v1::Progress> progress = Progress();
  ASSERT_TRUE(progress.has_value());
  EXPECT_EQ(progress->rank(), 1);
  EXPECT_EQ(progress->worker(), "b");
  EXPECT_EQ(proto::FromProto(progress->age()), absl::Milliseconds(3400));
  EXPECT_EQ(progress->step(), 7);
  EXPECT_EQ(progress->whereabouts(), "in step 7");
  EXPECT_FALSE(progress->stalled());
}

struct Stall {
  const char* name;
  Word word;
  bool stalled;
};

class StallTest : public ProgressTest, public ::testing::WithParamInterface<Stall> {};

TEST_P(StallTest, IsDistinguishedFromASlowStep) {
  Say(0, {.age = 0, .step_seconds = GetParam().word.step_seconds});
  Say(1, GetParam().word);
  EXPECT_EQ(Progress()->stalled(), GetParam().stalled);
}

INSTANTIATE_TEST_SUITE_P(
    Table, StallTest,
    ::testing::Values(
        Stall{"Moving", {.age = 0.1}, false}, Stall{"ShortStep", {.age = 4.9}, false},
        Stall{"LongerThanShortSteps", {.age = 5}, true},
        Stall{"WithinALongStep", {.age = 59, .step_seconds = 30}, false},
        Stall{"LongerThanLongSteps", {.age = 60, .step_seconds = 30}, true},
        Stall{"FirstStep", {.age = 29, .step_seconds = 0}, false},
        Stall{"FirstStepForLong", {.age = 30, .step_seconds = 0}, true},
        Stall{"ValidationBeforeTheFirstStep", {.step = 0, .age = 30, .step_seconds = 0}, true},
        Stall{"Saving", {.phase = v1::RANK_PHASE_CHECKPOINTING, .age = 300}, false},
        Stall{"StoppedWhileSaving", {.phase = v1::RANK_PHASE_CHECKPOINTING, .age = 5, .stopped = true}, true},
        Stall{"JustStopped", {.age = 1, .step_seconds = 30, .stopped = true}, false}),
    [](const auto& info) { return info.param.name; });

TEST_F(ProgressTest, UnheardRanksAreNotReported) {
  EXPECT_FALSE(Progress().has_value()) << "no rank has been looked at";
  Say(0, {.age = 1});
  Say(1, {.age = 9});
  driver_.Disconnect("b");
  EXPECT_EQ(Progress()->rank(), 0) << "worker b is away, its rank may well go on";
  driver_.SayAll("a", "id-job", v1::RANK_PHASE_FINISHED);
  EXPECT_FALSE(Progress().has_value());
}

TEST_F(ProgressTest, BoardAgesEntriesAndForgetsEndedJobs) {
  platform::FakeClock clock(driver_.now);
  ProgressBoard board(clock);
  Say(0, {.age = 0.1});
  Say(1, {.age = 0.2});
  board.Look(driver_.state);
  clock.Advance(absl::Seconds(2));
  EXPECT_EQ(proto::FromProto(board.Find("id-job")->age()), absl::Milliseconds(2200));
  v1::Job job = driver_.Job();
  board.Fill(job);
  EXPECT_EQ(job.progress().rank(), 1);
  driver_.SayAll("a", "id-job", v1::RANK_PHASE_EXITED);
  driver_.SayAll("b", "id-job", v1::RANK_PHASE_EXITED);
  board.Look(driver_.state);
  EXPECT_FALSE(board.Find("id-job").has_value());
}

TEST(ProgressBoardTest, WaitingJobNamesTheOneAhead) {
  Driver driver;
  driver.Connect("a", 2);
  driver.Feed(SubmitOf("runs", 2));
  driver.Feed(SubmitOf("first", 2));
  driver.Feed(SubmitOf("second", 1));
  const platform::FakeClock clock;
  ProgressBoard board(clock);
  board.Look(driver.state);
  v1::Job job = driver.Job("id-second");
  board.Fill(job);
  EXPECT_EQ(job.message(), "waits behind job first (id-first), which needs 2 slots, 0 free of 2 on 1 worker");
  job = driver.Job("id-first");
  board.Fill(job);
  EXPECT_EQ(job.message(), "needs 2 slots, 0 free of 2 on 1 worker");
}

TEST(StallTextTest, NamesRankWorkerAndWhy) {
  v1::Progress progress;
  progress.set_rank(1);
  progress.set_worker("b");
  progress.mutable_age()->set_seconds(23);
  progress.mutable_age()->set_nanos(400'000'000);
  progress.set_whereabouts("in step 7");
  EXPECT_EQ(StallText(progress), "no progress for 23s: rank 1 on worker b is behind the others, in step 7");
  progress.set_stopped(true);
  EXPECT_EQ(StallText(progress),
            "no progress for 23s: rank 1 on worker b is stopped, by a signal or a debugger, in step 7");
}

}  // namespace
}  // namespace tandem::controller
