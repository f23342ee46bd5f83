// SPDX-License-Identifier: Apache-2.0
#include "worker/cause.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "tests/worker/core_harness.h"

namespace tandem::worker {
namespace {

using testing::HasSubstr;

struct Death {
  const char* name;
  Exit exit;
  bool finished;
  bool stop_sent;
  bool kill_sent;
  v1::FailureClass failure;
  const char* reason;
  const char* message;
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

TEST_P(DeathTest, HasClassReasonAndMessage) {
  const Death& death = GetParam();
  AttemptState attempt{.assignment = CoreHarness::Job("j", 2)};
  for (int i = 0; i < 3; ++i) {
    attempt.program.Add("a", "a", -1);
  }
  attempt.program.Add("forward layers.0.mlp", "forward", 2);
  if (death.stop_sent) {
    attempt.stop = Stop{.reason = "Cancelled"};
  }
  RankState rank{.finished = death.finished, .stop_sent = death.stop_sent, .kill_sent = death.kill_sent};
  rank.start.set_rank(1);
  rank.sample = CoreHarness::Stepping(37);
  const std::optional<v1::Cause> cause =
      CauseOfExit("w1", attempt, rank, death.exit, absl::FromUnixSeconds(100));
  if (death.failure == v1::FAILURE_CLASS_UNSPECIFIED) {
    EXPECT_FALSE(cause.has_value());
    return;
  }
  ASSERT_TRUE(cause.has_value());
  EXPECT_EQ(cause->class_(), death.failure) << cause->DebugString();
  EXPECT_EQ(cause->reason(), death.reason);
  EXPECT_EQ(cause->message(), death.message);
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

INSTANTIATE_TEST_SUITE_P(
    Table, DeathTest,
    testing::Values(
        Death{"Done", {0, 0}, true, false, false, v1::FAILURE_CLASS_UNSPECIFIED, "", ""},
        Death{"DoneThoughAskedToStop", {0, 0}, true, true, false, v1::FAILURE_CLASS_UNSPECIFIED, "", ""},
        Death{"Early",
              {0, 0},
              false,
              false,
              false,
              v1::FAILURE_CLASS_INFRASTRUCTURE,
              "ExitedEarly",
              "rank 1 exited with code 0 in step 37, after forward of microbatch 2: before it had finished"},
        Death{"Sigkill",
              {0, SIGKILL},
              false,
              false,
              false,
              v1::FAILURE_CLASS_INFRASTRUCTURE,
              "RankKilled",
              "rank 1 was killed by signal 9 (SIGKILL) in step 37, after forward of microbatch 2"},
        Death{"TheKernelForItsMemory",
              {0, SIGKILL, /*before_kill=*/false, "out of memory: it held 3 GiB"},
              false,
              false,
              false,
              v1::FAILURE_CLASS_OUT_OF_MEMORY,
              "OutOfMemory",
              "rank 1 was killed by signal 9 (SIGKILL) in step 37, after forward of microbatch 2: out of "
              "memory: it held 3 GiB"},
        Death{"Sigsegv",
              {0, SIGSEGV},
              false,
              false,
              false,
              v1::FAILURE_CLASS_INFRASTRUCTURE,
              "RankKilled",
              "rank 1 was killed by signal 11 (SIGSEGV) in step 37, after forward of microbatch 2"},
        Death{"ForeignSigkillWithinTheGrace",
              {0, SIGKILL},
              false,
              true,
              false,
              v1::FAILURE_CLASS_INFRASTRUCTURE,
              "RankKilled",
              "rank 1 was killed by signal 9 (SIGKILL) in step 37, after forward of microbatch 2"},
        Death{"OurSigkill",
              {0, SIGKILL},
              false,
              true,
              true,
              v1::FAILURE_CLASS_REQUESTED,
              "Cancelled",
              "rank 1 was stopped with SIGKILL in step 37, after forward of microbatch 2"},
        Death{"OurSigkillOfOneThatWasDyingAlready",
              {0, SIGKILL, /*before_kill=*/true},
              false,
              true,
              true,
              v1::FAILURE_CLASS_INFRASTRUCTURE,
              "RankKilled",
              "rank 1 was killed by signal 9 (SIGKILL) in step 37, after forward of microbatch 2"},
        Death{"AbortAfterStop",
              {0, SIGABRT},
              false,
              true,
              false,
              v1::FAILURE_CLASS_INFRASTRUCTURE,
              "RankKilled",
              "rank 1 was killed by signal 6 (SIGABRT) in step 37, after forward of microbatch 2"},
        Death{"AbortThatOutlastedTheGrace",
              {0, SIGABRT},
              false,
              true,
              true,
              v1::FAILURE_CLASS_INFRASTRUCTURE,
              "RankKilled",
              "rank 1 was killed by signal 6 (SIGABRT) in step 37, after forward of microbatch 2"},
        Death{"Stopped",
              {81, 0},
              false,
              true,
              false,
              v1::FAILURE_CLASS_REQUESTED,
              "Cancelled",
              "rank 1 was stopped in step 37, after forward of microbatch 2"},
        Death{"StoppedUnasked",
              {81, 0},
              false,
              false,
              false,
              v1::FAILURE_CLASS_INFRASTRUCTURE,
              "StoppedUnasked",
              "rank 1 exited with code 81 in step 37, after forward of microbatch 2: stopped, though the "
              "daemon "
              "had not "
              "asked"},
        Death{"User",
              {64, 0},
              false,
              false,
              false,
              v1::FAILURE_CLASS_USER,
              "UserError",
              "rank 1 exited with code 64 in step 37, after forward of microbatch 2: an error of the job; "
              "its log says which: `tandem logs j --rank 1`"},
        Death{"UserAfterStop",
              {78, 0},
              false,
              true,
              false,
              v1::FAILURE_CLASS_USER,
              "UserError",
              "rank 1 exited with code 78 in step 37, after forward of microbatch 2: an error of the job; "
              "its log says which: `tandem logs j --rank 1`"},
        Death{"Preempted",
              {75, 0},
              false,
              false,
              false,
              v1::FAILURE_CLASS_PREEMPTED,
              "Preempted",
              "rank 1 stopped after step 37: a worker of the job was asked to end"},
        Death{"PeerLost",
              {80, 0},
              false,
              false,
              false,
              v1::FAILURE_CLASS_PEER_LOST,
              "PeerLost",
              "rank 1 exited with code 80 in step 37, after forward of microbatch 2: it lost another rank"},
        Death{"Fenced",
              {82, 0},
              false,
              false,
              false,
              v1::FAILURE_CLASS_INFRASTRUCTURE,
              "Fenced",
              "rank 1 exited with code 82 in step 37, after forward of microbatch 2: it had not heard from a "
              "controller for too long"},
        Death{
            "Numeric",
            {83, 0},
            false,
            false,
            false,
            v1::FAILURE_CLASS_NUMERIC,
            "NonFinite",
            "rank 1 exited with code 83 in step 37, after forward of microbatch 2: loss or gradients are not "
            "finite"},
        Death{"OutOfMemory",
              {84, 0},
              false,
              false,
              false,
              v1::FAILURE_CLASS_OUT_OF_MEMORY,
              "OutOfMemory",
              "rank 1 exited with code 84 in step 37, after forward of microbatch 2: out of memory"},
        Death{
            "OtherCode",
            {3, 0},
            false,
            false,
            false,
            v1::FAILURE_CLASS_INFRASTRUCTURE,
            "RankExited",
            "rank 1 exited with code 3 in step 37, after forward of microbatch 2: its log says more: `tandem "
            "logs j --rank 1`"},
        Death{"OtherCodeAfterStop",
              {1, 0},
              false,
              true,
              false,
              v1::FAILURE_CLASS_REQUESTED,
              "Cancelled",
              "rank 1 was stopped in step 37, after forward of microbatch 2"}),
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
  AttemptState attempt;
  PageSample sample;
  EXPECT_EQ(Whereabouts(attempt, sample), "while starting");
  sample.phase = v1::RANK_PHASE_CONNECTING;
  EXPECT_EQ(Whereabouts(attempt, sample), "while connecting to the other ranks");
  sample.phase = v1::RANK_PHASE_LOADING;
  EXPECT_EQ(Whereabouts(attempt, sample), "while loading");
  sample.phase = v1::RANK_PHASE_READY;
  EXPECT_EQ(Whereabouts(attempt, sample), "before the first step");
  sample = {.phase = v1::RANK_PHASE_STEPPING, .step = 4};
  EXPECT_EQ(Whereabouts(attempt, sample), "in step 4");
  sample.instruction = 12;
  EXPECT_EQ(Whereabouts(attempt, sample), "in step 4, after instruction 12");
  sample.step = 0;
  EXPECT_EQ(Whereabouts(attempt, sample), "in the first validation, after instruction 12");
  sample.step = 4;
  sample.phase = v1::RANK_PHASE_CHECKPOINTING;
  EXPECT_EQ(Whereabouts(attempt, sample), "in step 4, while writing a checkpoint");
  sample.phase = v1::RANK_PHASE_FINISHED;
  EXPECT_EQ(Whereabouts(attempt, sample), "after its last step");
}

}  // namespace
}  // namespace tandem::worker
