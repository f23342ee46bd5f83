// SPDX-License-Identifier: Apache-2.0
#include "worker/cause.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "tests/worker/core_harness.h"

namespace tandem::worker {
namespace {

// What came before the exit: nothing, the daemon's request to stop, or that and its SIGKILL.
enum Before { kNothing, kStop, kKill };

struct Death {
  const char* name;
  Exit exit;
  Before before;
  const char* cause;  // class, reason, message; @: in step 37, after forward of microbatch 2
};

class DeathTest : public testing::TestWithParam<Death> {};

TEST(CauseTest, AfterACheckpointNoRankIsWritingOne) {
  AttemptState attempt{.assignment = CoreHarness::Job("j", 2), .request_sent = 7};
  attempt.assignment.set_desired(v1::DESIRED_STOP_AFTER_CHECKPOINT);
  attempt.assignment.set_request(7);
  attempt.assignment.set_reason("Cancelled");
  RankState rank;
  rank.start.set_rank(1);
  rank.sample = CoreHarness::Stepping(37);
  rank.sample.phase = v1::RANK_PHASE_CHECKPOINTING;  // which it was in last
  const auto message = [&] {
    const std::optional<v1::Cause> cause =
        CauseOfExit("w1", attempt, rank, {.exit_code = 75}, absl::FromUnixSeconds(100));
    EXPECT_EQ(cause->class_(), v1::FAILURE_CLASS_REQUESTED);
    EXPECT_EQ(cause->reason(), "Cancelled");
    return cause->message();
  };
  EXPECT_EQ(message(), "rank 1 stopped after step 37");
  attempt.assignment.mutable_resolved()->mutable_checkpoint()->set_directory("/runs/j");
  EXPECT_EQ(message(), "rank 1 stopped after step 37, with a checkpoint");
}

struct DyingRank {
  explicit DyingRank(Before before) {
    for (int i = 0; i < 3; ++i) {
      attempt.program.Add("a", "a", -1);
    }
    attempt.program.Add("forward layers.0.mlp", "forward", 2);
    rank.stop_sent = before != kNothing;
    rank.kill_sent = before == kKill;
    if (rank.stop_sent) {
      attempt.stop = Stop{.reason = "Cancelled"};
    }
    rank.start.set_rank(1);
    rank.sample = CoreHarness::Stepping(37);
  }
  std::optional<v1::Cause> CauseOf(const Exit& exit) const {
    return CauseOfExit("w1", attempt, rank, exit, absl::FromUnixSeconds(100));
  }

  AttemptState attempt{.assignment = CoreHarness::Job("j", 2)};
  RankState rank;
};

TEST(CauseTest, FinishedRankHasNone) {
  for (const Before before : {kNothing, kStop}) {
    DyingRank dying(before);
    dying.rank.finished = true;
    EXPECT_FALSE(dying.CauseOf({}).has_value());
  }
}

TEST_P(DeathTest, HasClassReasonAndMessage) {
  const Death& death = GetParam();
  const std::optional<v1::Cause> cause = DyingRank(death.before).CauseOf(death.exit);
  ASSERT_TRUE(cause.has_value());
  EXPECT_EQ(absl::StrCat(absl::StripPrefix(v1::FailureClass_Name(cause->class_()), "FAILURE_CLASS_"), " ",
                         cause->reason(), ": ", cause->message()),
            absl::StrReplaceAll(death.cause, {{"@", "in step 37, after forward of microbatch 2"}}));
  EXPECT_EQ(cause->rank(), 1);
  EXPECT_EQ(cause->worker(), "w1");
  EXPECT_EQ(cause->step(), 37);
  EXPECT_EQ(cause->last_instruction(), "forward layers.0.mlp mb 2");
  EXPECT_EQ(cause->instruction(), "") << "what failed is not known";
  EXPECT_EQ(cause->signal(), death.exit.signal);
  EXPECT_EQ(cause->has_exit_code(), death.exit.signal == 0);
  EXPECT_EQ(cause->exit_code(), death.exit.exit_code);
  EXPECT_EQ(cause->time().seconds(), 100);
}

const Death kDeaths[] = {
    {"Early",
     {},
     kNothing,
     "INFRASTRUCTURE ExitedEarly: rank 1 exited with code 0 @: before it had finished"},
    {"Sigkill",
     {0, SIGKILL},
     kNothing,
     "INFRASTRUCTURE RankKilled: rank 1 was killed by signal 9 (SIGKILL) @"},
    {"TheKernelForItsMemory",
     {0, SIGKILL, false, "out of memory: it held 3 GiB"},
     kNothing,
     "OUT_OF_MEMORY OutOfMemory: rank 1 was killed by signal 9 (SIGKILL) @: out of memory: it held 3 GiB"},
    {"Sigsegv",
     {0, SIGSEGV},
     kNothing,
     "INFRASTRUCTURE RankKilled: rank 1 was killed by signal 11 (SIGSEGV) @"},
    {"ForeignSigkillWithinTheGrace",
     {0, SIGKILL},
     kStop,
     "INFRASTRUCTURE RankKilled: rank 1 was killed by signal 9 (SIGKILL) @"},
    {"OurSigkill", {0, SIGKILL}, kKill, "REQUESTED Cancelled: rank 1 was stopped with SIGKILL @"},
    {"OurSigkillOfOneThatWasDyingAlready",
     {0, SIGKILL, /*before_kill=*/true},
     kKill,
     "INFRASTRUCTURE RankKilled: rank 1 was killed by signal 9 (SIGKILL) @"},
    {"AbortAfterStop",
     {0, SIGABRT},
     kStop,
     "INFRASTRUCTURE RankKilled: rank 1 was killed by signal 6 (SIGABRT) @"},
    {"AbortThatOutlastedTheGrace",
     {0, SIGABRT},
     kKill,
     "INFRASTRUCTURE RankKilled: rank 1 was killed by signal 6 (SIGABRT) @"},
    {"Stopped", {81}, kStop, "REQUESTED Cancelled: rank 1 was stopped @"},
    {"StoppedUnasked",
     {81},
     kNothing,
     "INFRASTRUCTURE StoppedUnasked: rank 1 exited with code 81 @: stopped, though the daemon had not asked"},
    {"User",
     {64},
     kNothing,
     "USER UserError: rank 1 exited with code 64 @: an error of the job; its log says which: `tandem logs j "
     "--rank 1`"},
    {"UserAfterStop",
     {78},
     kStop,
     "USER UserError: rank 1 exited with code 78 @: an error of the job; its log says which: `tandem logs j "
     "--rank 1`"},
    {"Preempted",
     {75},
     kNothing,
     "PREEMPTED Preempted: rank 1 stopped after step 37: a worker of the job was asked to end"},
    {"PeerLost", {80}, kNothing, "PEER_LOST PeerLost: rank 1 exited with code 80 @: it lost another rank"},
    {"Fenced",
     {82},
     kNothing,
     "INFRASTRUCTURE Fenced: rank 1 exited with code 82 @: it had not heard from a controller for too long"},
    {"Numeric",
     {83},
     kNothing,
     "NUMERIC NonFinite: rank 1 exited with code 83 @: loss or gradients are not finite"},
    {"OutOfMemory", {84}, kNothing, "OUT_OF_MEMORY OutOfMemory: rank 1 exited with code 84 @: out of memory"},
    {"OtherCode",
     {3},
     kNothing,
     "INFRASTRUCTURE RankExited: rank 1 exited with code 3 @: its log says more: `tandem logs j --rank 1`"},
    {"OtherCodeAfterStop", {1}, kStop, "REQUESTED Cancelled: rank 1 was stopped @"},
};

INSTANTIATE_TEST_SUITE_P(Table, DeathTest, testing::ValuesIn(kDeaths),
                         [](const auto& info) { return info.param.name; });

TEST(CauseTest, RanksOwnErrorOutranksItsSignal) {
  AttemptState attempt;
  RankState rank;
  rank.start.set_rank(2);
  v1::Cause failed;
  failed.set_class_(v1::FAILURE_CLASS_PEER_LOST);
  failed.set_reason("PeerLost");
  failed.mutable_time()->set_seconds(1);
  failed.set_message("rank 2 lost rank 0");
  rank.failed = CompleteFailed(failed, "w1", rank, absl::FromUnixSeconds(9));
  const std::optional<v1::Cause> cause =
      CauseOfExit("w1", attempt, rank, {.signal = SIGABRT}, absl::FromUnixSeconds(9));
  EXPECT_EQ(cause->class_(), v1::FAILURE_CLASS_PEER_LOST);
  EXPECT_EQ(cause->message(), "rank 2 lost rank 0");
  EXPECT_EQ(cause->signal(), 0);
  EXPECT_EQ(cause->rank(), 2);
  EXPECT_EQ(cause->time().seconds(), 1);
}

TEST(WhereaboutsTest, IsSaidForEveryPhase) {
  const std::pair<PageSample, std::string> kCases[] = {
      {{}, "while starting"},
      {{.phase = v1::RANK_PHASE_CONNECTING}, "while connecting to the other ranks"},
      {{.phase = v1::RANK_PHASE_LOADING}, "while loading"},
      {{.phase = v1::RANK_PHASE_READY}, "before the first step"},
      {{.phase = v1::RANK_PHASE_STEPPING, .step = 4}, "in step 4"},
      {{v1::RANK_PHASE_STEPPING, 4, 12}, "in step 4, after instruction 12"},
      {{v1::RANK_PHASE_STEPPING, 0, 12}, "in the first validation, after instruction 12"},
      {{v1::RANK_PHASE_CHECKPOINTING, 4, 12}, "in step 4, while writing a checkpoint"},
      {{v1::RANK_PHASE_FINISHED, 4, 12}, "after its last step"},
  };
  for (const auto& [sample, text] : kCases) {
    EXPECT_EQ(Whereabouts(AttemptState(), sample), text);
  }
}

}  // namespace
}  // namespace tandem::worker
