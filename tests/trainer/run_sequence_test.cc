// SPDX-License-Identifier: Apache-2.0
#include "trainer/run_sequence.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem::trainer {
namespace {

using Action = RunSequence::Action;

std::string Name(const Run& run) {
  const std::string recorded =
      run.recording == Recording::kNone ? "" : (run.recording == Recording::kOverlapped ? "*" : "**");
  switch (run.kind) {
    case RunKind::kTrain:
      return absl::StrCat("train", run.applied, ">", run.computed, recorded);
    case RunKind::kBegin:
      return absl::StrCat("begin", run.computed, recorded);
    case RunKind::kUpdate:
      return absl::StrCat("update", run.applied);
    case RunKind::kValidate:
      return "validate";
    case RunKind::kTrainSave:
      return absl::StrCat("save", run.applied, "&train", run.applied, ">", run.computed);
  }
  return "?";
}

// Drives a sequence as a rank does, with at most two runs in flight. agree: what the ranks agree on in the
// run that computes a step; during: in the n-th piece of the validation of a step. The result is what
// happened, in order; "|" where everything in flight has ended, "-" where a validation makes way.
std::string Drive(
    const SequenceOptions& options,
    const std::function<Agreed(int64_t)>& agree = [](int64_t) { return Agreed{}; },
    const std::function<Agreed(int64_t, int)>& during = [](int64_t, int) { return Agreed{}; },
    bool saves_fail = false) {
  RunSequence sequence(options);
  std::deque<Run> in_flight;
  std::vector<std::string> log;
  int pieces = 0;
  const auto end_oldest = [&] {
    if (in_flight.front().computed > 0) {
      sequence.Ended(agree(in_flight.front().computed));
    }
    if (in_flight.front().recording != Recording::kNone) {
      sequence.Recorded();
    }
    in_flight.pop_front();
  };
  while (log.size() < 100) {
    if (in_flight.size() == 2) {
      end_oldest();
    }
    const RunSequence::Next next = sequence.Decide(static_cast<int>(in_flight.size()));
    switch (next.action) {
      case Action::kIssue:
        log.push_back(Name(next.run));
        sequence.Issued(next.run);
        in_flight.push_back(next.run);
        break;
      case Action::kDrain:
        while (!in_flight.empty()) {
          end_oldest();
        }
        log.push_back("|");
        break;
      case Action::kValidate:
        log.push_back(absl::StrCat("validate", sequence.step()));
        while (pieces < 3 && !sequence.validation_makes_way()) {
          sequence.Ended(during(sequence.step(), ++pieces));
        }
        if (pieces < 3) {
          log.push_back("-");
        } else {
          sequence.Validated();
          pieces = 0;
        }
        break;
      case Action::kSave:
        log.push_back(absl::StrCat("save", sequence.step(), sequence.validation_pending() ? "?" : "",
                                   sequence.is_final() ? "!" : ""));
        sequence.Saved(!saves_fail);
        break;
      case Action::kAnswer:
        log.push_back("answer");
        sequence.Answered();
        break;
      case Action::kStop:
        log.push_back("stop");
        return absl::StrJoin(log, " ");
      case Action::kFinish:
        log.push_back("finish");
        return absl::StrJoin(log, " ");
    }
  }
  return absl::StrJoin(log, " ") + " ...";
}

TEST(RunSequenceTest, NextStepsRunAppliesAStep) {
  EXPECT_EQ(Drive({.last_step = 4}), "begin1 train1>2 train2>3 train3>4 update4 | finish");
  EXPECT_EQ(Drive({.last_step = 1}), "begin1 update1 | finish");
  EXPECT_EQ(Drive({.first_step = 3, .last_step = 3}), "finish");
}

TEST(RunSequenceTest, NothingFollowsTheLastStep) {
  EXPECT_EQ(Drive({.first_step = 6,
                   .last_step = 4,
                   .validate_every = 3,
                   .checkpoint_every = 2,
                   .has_directory = true}),
            "finish");
}

TEST(RunSequenceTest, WeightsAreReadAfterAnUpdate) {
  EXPECT_EQ(Drive({.last_step = 5, .checkpoint_every = 2, .has_directory = true}),
            "begin1 train1>2 update2 | save2 begin3 train3>4 update4 | save4 begin5 update5 | save5! finish");
}

TEST(RunSequenceTest, ValidatesFirstPeriodicallyAndLast) {
  EXPECT_EQ(
      Drive({.last_step = 5, .validate_every = 2}),
      "validate0 begin1 train1>2 update2 | validate2 begin3 train3>4 update4 | validate4 begin5 update5 | "
      "validate5 finish");
}

TEST(RunSequenceTest, ResumedJobSkipsTheFirstValidation) {
  EXPECT_EQ(Drive({.first_step = 2, .last_step = 3, .validate_every = 2}),
            "begin3 update3 | validate3 finish");
}

TEST(RunSequenceTest, RequestActsOneRunLater) {
  const auto at_two = [](bool stop) {
    return
        [stop](int64_t step) { return Agreed{.checkpoint = step == 2 && !stop, .stop = step == 2 && stop}; };
  };
  EXPECT_EQ(Drive({.last_step = 5, .has_directory = true}, at_two(false)),
            "begin1 train1>2 train2>3 update3 | save3 answer begin4 train4>5 update5 | save5! finish");
  EXPECT_EQ(Drive({.last_step = 5, .has_directory = true}, at_two(true)),
            "begin1 train1>2 train2>3 update3 | save3! stop");
}

TEST(RunSequenceTest, RequestBeforeABoundaryActsThere) {
  EXPECT_EQ(Drive({.last_step = 5, .checkpoint_every = 2, .has_directory = true},
                  [](int64_t step) { return Agreed{.stop = step == 2}; }),
            "begin1 train1>2 update2 | save2! stop");
}

TEST(RunSequenceTest, KnownStopSkipsAValidation) {
  EXPECT_EQ(Drive({.first_step = 1, .last_step = 9, .validate_every = 3, .has_directory = true},
                  [](int64_t step) { return Agreed{.stop = step == 3}; }),
            "begin2 train2>3 update3 | save3?! stop");
}

// What comes in one piece of a validation.
std::function<Agreed(int64_t, int)> InPiece(int64_t at_step, int at_piece, const Agreed& agreed) {
  return [=](int64_t step, int piece) { return step == at_step && piece == at_piece ? agreed : Agreed{}; };
}

const auto kNothing = [](int64_t) { return Agreed{}; };

TEST(RunSequenceTest, StopLeavesAValidationToTheResume) {
  EXPECT_EQ(Drive({.first_step = 1, .last_step = 9, .validate_every = 3, .has_directory = true}, kNothing,
                  InPiece(3, 2, {.stop = true})),
            "begin2 train2>3 update3 | validate3 - save3?! stop");
  EXPECT_EQ(Drive({.first_step = 3,
                   .validates_first = true,
                   .last_step = 4,
                   .validate_every = 3,
                   .has_directory = true}),
            "validate3 begin4 update4 | validate4 save4! finish");
}

TEST(RunSequenceTest, StopInTheLastPieceLosesNothing) {
  EXPECT_EQ(Drive({.first_step = 1, .last_step = 9, .validate_every = 3, .has_directory = true}, kNothing,
                  InPiece(3, 3, {.stop = true})),
            "begin2 train2>3 update3 | validate3 save3! stop");
}

TEST(RunSequenceTest, StopBeforeTheFirstStepSavesNothing) {
  EXPECT_EQ(Drive({.last_step = 9, .validate_every = 3, .has_directory = true}, kNothing,
                  InPiece(0, 1, {.stop = true})),
            "validate0 - stop");
}

TEST(RunSequenceTest, StopInTheLastValidationIsNoFinish) {
  EXPECT_EQ(Drive({.first_step = 1, .last_step = 2, .validate_every = 3, .has_directory = true}, kNothing,
                  InPiece(2, 1, {.stop = true})),
            "begin2 update2 | validate2 - save2?! stop");
  EXPECT_EQ(
      Drive({.first_step = 1, .last_step = 2, .validate_every = 3}, kNothing, InPiece(2, 1, {.stop = true})),
      "begin2 update2 | validate2 - stop");
  EXPECT_EQ(Drive({.first_step = 2,
                   .validates_first = true,
                   .last_step = 2,
                   .validate_every = 3,
                   .has_directory = true}),
            "validate2 finish");
  EXPECT_EQ(Drive({.first_step = 2,
                   .validates_first = true,
                   .last_step = 2,
                   .validate_every = 3,
                   .has_directory = true},
                  kNothing, InPiece(2, 2, {.stop = true})),
            "validate2 - stop");
}

TEST(RunSequenceTest, AJobThatNeverValidatesDoesNotFirst) {
  EXPECT_EQ(Drive({.first_step = 2, .validates_first = true, .last_step = 3}), "begin3 update3 | finish");
}

TEST(RunSequenceTest, CheckpointInterruptsAValidation) {
  EXPECT_EQ(Drive({.first_step = 1, .last_step = 4, .validate_every = 3, .has_directory = true}, kNothing,
                  InPiece(3, 1, {.checkpoint = true})),
            "begin2 train2>3 update3 | validate3 - save3? answer validate3 begin4 update4 | validate4 save4! "
            "finish");
  EXPECT_EQ(Drive({.first_step = 1, .last_step = 2, .validate_every = 3, .has_directory = true}, kNothing,
                  InPiece(2, 1, {.checkpoint = true})),
            "begin2 update2 | validate2 - save2?! answer validate2 finish");
}

TEST(RunSequenceTest, KnownCheckpointPrecedesAValidation) {
  EXPECT_EQ(Drive({.first_step = 1, .last_step = 4, .validate_every = 3, .has_directory = true},
                  [](int64_t step) { return Agreed{.checkpoint = step == 3}; }),
            "begin2 train2>3 update3 | save3? answer validate3 begin4 update4 | validate4 save4! finish");
}

TEST(RunSequenceTest, CheckpointBeforeStepOneIsStepOnes) {
  EXPECT_EQ(Drive({.last_step = 2, .validate_every = 3, .has_directory = true}, kNothing,
                  InPiece(0, 1, {.checkpoint = true})),
            "validate0 begin1 update1 | save1 answer begin2 update2 | validate2 save2! finish");
}

TEST(RunSequenceTest, ProfileAgreedInAValidationFollowsIt) {
  EXPECT_EQ(Drive({.first_step = 1, .last_step = 4, .validate_every = 3}, kNothing,
                  InPiece(3, 1, {.profile = {.id = 7, .steps = 1}})),
            "begin2 train2>3 update3 | validate3 begin4* | update4 | validate4 finish");
}

TEST(RunSequenceTest, StopRetriesAFailedSave) {
  EXPECT_EQ(Drive(
                {.first_step = 1, .last_step = 9, .validate_every = 3, .has_directory = true}, kNothing,
                [](int64_t step, int piece) {
                  return Agreed{.checkpoint = step == 3 && piece == 1, .stop = step == 3 && piece == 2};
                },
                /*saves_fail=*/true),
            "begin2 train2>3 update3 | validate3 - save3? answer validate3 - save3?! stop");
}

// One that was written beside training.
TEST(RunSequenceTest, FailedSaveIsRetriedOnlyAtItsStep) {
  RunSequence sequence({.first_step = 1, .last_step = 9, .checkpoint_every = 2, .has_directory = true});
  sequence.Issued({.kind = RunKind::kBegin, .computed = 2});
  sequence.Issued({.kind = RunKind::kUpdate, .applied = 2});
  EXPECT_EQ(sequence.Decide(0).action, Action::kSave);
  sequence.Saved(true);
  EXPECT_FALSE(sequence.SaveFailed(2));  // nothing wants it
  EXPECT_EQ(sequence.Decide(0).action, Action::kIssue);
  sequence.Ended({.stop = true});
  EXPECT_EQ(sequence.Decide(0).action, Action::kSave);
  sequence.Saved(true);
  EXPECT_EQ(sequence.Decide(0).action, Action::kStop);
  EXPECT_FALSE(sequence.SaveFailed(1));
  EXPECT_TRUE(sequence.SaveFailed(2));
  EXPECT_EQ(sequence.Decide(0).action, Action::kSave);
}

TEST(RunSequenceTest, SaveBesideTrainingNeedsNoUpdate) {
  SequenceOptions options{.last_step = 6, .checkpoint_every = 2, .has_directory = true, .saves_beside = true};
  EXPECT_EQ(Drive(options),
            "begin1 train1>2 save2&train2>3 train3>4 save4&train4>5 train5>6 update6 | save6! finish");
  // A step that is validated ends the run in any case.
  options.validate_every = 4;
  EXPECT_EQ(Drive(options),
            "validate0 begin1 train1>2 save2&train2>3 train3>4 update4 | validate4 save4 begin5 train5>6 "
            "update6 | validate6 save6! finish");
}

TEST(RunSequenceTest, CopyWaitsForThePreviousSave) {
  EXPECT_EQ(Drive({.last_step = 4, .checkpoint_every = 1, .has_directory = true, .saves_beside = true}),
            "begin1 save1&train1>2 | save2&train2>3 | save3&train3>4 update4 | save4! finish");
}

TEST(RunSequenceTest, NextRunSavesOnRequest) {
  EXPECT_EQ(Drive({.last_step = 5, .has_directory = true, .saves_beside = true},
                  [](int64_t step) { return Agreed{.checkpoint = step == 1 || step == 2}; }),
            "begin1 train1>2 | save2&train2>3 train3>4 train4>5 update5 | save5! finish");
}

TEST(RunSequenceTest, AStopSavesWhereNothingIsInFlight) {
  EXPECT_EQ(Drive({.last_step = 9, .checkpoint_every = 3, .has_directory = true, .saves_beside = true},
                  [](int64_t step) { return Agreed{.stop = step == 2}; }),
            "begin1 train1>2 train2>3 update3 | save3! stop");
}

TEST(RunSequenceTest, WithoutADirectoryNothingIsSaved) {
  EXPECT_EQ(Drive({.last_step = 4, .checkpoint_every = 1},
                  [](int64_t step) { return Agreed{.checkpoint = step == 1}; }),
            "begin1 train1>2 update2 | answer begin3 train3>4 update4 | finish");
}

TEST(RunSequenceTest, StopInTheLastStepFinishes) {
  EXPECT_EQ(
      Drive({.last_step = 2, .has_directory = true}, [](int64_t step) { return Agreed{.stop = step == 2}; }),
      "begin1 train1>2 update2 | save2! finish");
}

TEST(RunSequenceTest, RecordedRunIsAlone) {
  EXPECT_EQ(
      Drive({.last_step = 8},
            [](int64_t step) {
              return step == 1 ? Agreed{.profile = {.id = 7, .steps = 1, .serialized = true}} : Agreed{};
            }),
      "begin1 train1>2 | train2>3* | train3>4** | train4>5 train5>6 train6>7 train7>8 update8 | finish");
}

TEST(RunSequenceTest, UpdateWaitsForARecordedRun) {
  EXPECT_EQ(
      Drive({.last_step = 3},
            [](int64_t step) { return step == 1 ? Agreed{.profile = {.id = 7, .steps = 1}} : Agreed{}; }),
      "begin1 train1>2 | train2>3* | update3 | finish");
}

TEST(RunSequenceTest, RepeatedProfileIsRecordedOnce) {
  EXPECT_EQ(
      Drive({.last_step = 5},
            [](int64_t step) { return step <= 2 ? Agreed{.profile = {.id = 7, .steps = 1}} : Agreed{}; }),
      "begin1 train1>2 | train2>3* | train3>4 train4>5 update5 | finish");
}

TEST(RunSequenceTest, ProfileEndsDespiteBoundaries) {
  EXPECT_EQ(
      Drive({.last_step = 4, .checkpoint_every = 1, .has_directory = true},
            [](int64_t step) { return step == 1 ? Agreed{.profile = {.id = 7, .steps = 2}} : Agreed{}; }),
      "begin1 update1 | save1 begin2* | update2 | save2 begin3* | update3 | save3 begin4 update4 | save4! "
      "finish");
}

}  // namespace
}  // namespace tandem::trainer
