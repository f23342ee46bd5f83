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

using Agree = std::function<Agreed(int64_t step)>;
using During = std::function<Agreed(int64_t step, int piece)>;

// Drives a sequence as a rank does, with at most two runs in flight. agree: what the ranks agree on in the
// run that computes a step; during: in the n-th piece of the validation of a step. The result is what
// happened, in order; "|" where everything in flight has ended, "-" where a validation makes way.
std::string Drive(const SequenceOptions& options, const Agree& agree, const During& during, bool saves_fail) {
  RunSequence sequence(options);
  std::deque<Run> in_flight;
  std::vector<std::string> log;
  int pieces = 0;
  const auto end_oldest = [&] {
    if (in_flight.front().computed > 0) {
      sequence.Ended(agree ? agree(in_flight.front().computed) : Agreed{});
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
          ++pieces;
          sequence.Ended(during ? during(sequence.step(), pieces) : Agreed{});
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

// What a sequence does, as Drive writes it. A case with several rows shows one thing in several jobs.
struct Row {
  std::string name;
  SequenceOptions options;
  std::string expected;
  Agree agree = {};
  During during = {};
  bool saves_fail = false;
};

class RunSequenceRowTest : public testing::TestWithParam<Row> {};

TEST_P(RunSequenceRowTest, Runs) {
  const Row& row = GetParam();
  EXPECT_EQ(Drive(row.options, row.agree, row.during, row.saves_fail), row.expected);
}

// What the ranks agree on in the run that computes one step.
Agree InStep(int64_t at_step, const Agreed& agreed) {
  return [=](int64_t step) { return step == at_step ? agreed : Agreed{}; };
}

// What comes in one piece of a validation.
During InPiece(int64_t at_step, int at_piece, const Agreed& agreed) {
  return [=](int64_t step, int piece) { return step == at_step && piece == at_piece ? agreed : Agreed{}; };
}

// Jobs with a directory that validate every third step.
SequenceOptions Validating(int64_t first_step, int64_t last_step, bool validates_first = false) {
  return {.first_step = first_step,
          .validates_first = validates_first,
          .last_step = last_step,
          .validate_every = 3,
          .has_directory = true};
}

constexpr Agreed kStop = {.stop = true};
constexpr Agreed kCheckpoint = {.checkpoint = true};

const Row kRows[] = {
    {"NextStepsRunAppliesAStep", {.last_step = 4}, "begin1 train1>2 train2>3 train3>4 update4 | finish"},
    {"OnlyStepIsAppliedByAnUpdate", {.last_step = 1}, "begin1 update1 | finish"},
    {"FinishedJobDoesNothing", {.first_step = 3, .last_step = 3}, "finish"},
    {"NothingFollowsTheLastStep",
     {.first_step = 6, .last_step = 4, .validate_every = 3, .checkpoint_every = 2, .has_directory = true},
     "finish"},
    {"WeightsAreReadAfterAnUpdate",
     {.last_step = 5, .checkpoint_every = 2, .has_directory = true},
     "begin1 train1>2 update2 | save2 begin3 train3>4 update4 | save4 begin5 update5 | save5! finish"},
    {"ValidatesFirstPeriodicallyAndLast",
     {.last_step = 5, .validate_every = 2},
     "validate0 begin1 train1>2 update2 | validate2 begin3 train3>4 update4 | validate4 begin5 update5 | "
     "validate5 finish"},
    {"ResumedJobSkipsTheFirstValidation",
     {.first_step = 2, .last_step = 3, .validate_every = 2},
     "begin3 update3 | validate3 finish"},
    {"CheckpointActsOneRunLater",
     {.last_step = 5, .has_directory = true},
     "begin1 train1>2 train2>3 update3 | save3 answer begin4 train4>5 update5 | save5! finish",
     InStep(2, kCheckpoint)},
    {"StopActsOneRunLater",
     {.last_step = 5, .has_directory = true},
     "begin1 train1>2 train2>3 update3 | save3! stop",
     InStep(2, kStop)},
    {"RequestBeforeABoundaryActsThere",
     {.last_step = 5, .checkpoint_every = 2, .has_directory = true},
     "begin1 train1>2 update2 | save2! stop",
     InStep(2, kStop)},
    {"KnownStopSkipsAValidation", Validating(1, 9), "begin2 train2>3 update3 | save3?! stop",
     InStep(3, kStop)},
    {.name = "StopLeavesAValidationToTheResume",
     .options = Validating(1, 9),
     .expected = "begin2 train2>3 update3 | validate3 - save3?! stop",
     .during = InPiece(3, 2, kStop)},
    {"ResumeValidatesFirst", Validating(3, 4, /*validates_first=*/true),
     "validate3 begin4 update4 | validate4 save4! finish"},
    {.name = "StopInTheLastPieceLosesNothing",
     .options = Validating(1, 9),
     .expected = "begin2 train2>3 update3 | validate3 save3! stop",
     .during = InPiece(3, 3, kStop)},
    {.name = "StopBeforeTheFirstStepSavesNothing",
     .options = Validating(0, 9),
     .expected = "validate0 - stop",
     .during = InPiece(0, 1, kStop)},
    {.name = "StopInTheLastValidationIsNoFinish",
     .options = Validating(1, 2),
     .expected = "begin2 update2 | validate2 - save2?! stop",
     .during = InPiece(2, 1, kStop)},
    {.name = "StopWithoutADirectorySavesNothing",
     .options = {.first_step = 1, .last_step = 2, .validate_every = 3},
     .expected = "begin2 update2 | validate2 - stop",
     .during = InPiece(2, 1, kStop)},
    {"ResumedLastValidationFinishes", Validating(2, 2, /*validates_first=*/true), "validate2 finish"},
    {.name = "ResumedLastValidationIsStopped",
     .options = Validating(2, 2, /*validates_first=*/true),
     .expected = "validate2 - stop",
     .during = InPiece(2, 2, kStop)},
    {"AJobThatNeverValidatesDoesNotFirst",
     {.first_step = 2, .validates_first = true, .last_step = 3},
     "begin3 update3 | finish"},
    {.name = "CheckpointInterruptsAValidation",
     .options = Validating(1, 4),
     .expected = "begin2 train2>3 update3 | validate3 - save3? answer validate3 begin4 update4 | validate4 "
                 "save4! finish",
     .during = InPiece(3, 1, kCheckpoint)},
    {.name = "CheckpointInterruptsTheLastValidation",
     .options = Validating(1, 2),
     .expected = "begin2 update2 | validate2 - save2?! answer validate2 finish",
     .during = InPiece(2, 1, kCheckpoint)},
    {"KnownCheckpointPrecedesAValidation", Validating(1, 4),
     "begin2 train2>3 update3 | save3? answer validate3 begin4 update4 | validate4 save4! finish",
     InStep(3, kCheckpoint)},
    {.name = "CheckpointBeforeStepOneIsStepOnes",
     .options = Validating(0, 2),
     .expected = "validate0 begin1 update1 | save1 answer begin2 update2 | validate2 save2! finish",
     .during = InPiece(0, 1, kCheckpoint)},
    {.name = "ProfileAgreedInAValidationFollowsIt",
     .options = {.first_step = 1, .last_step = 4, .validate_every = 3},
     .expected = "begin2 train2>3 update3 | validate3 begin4* | update4 | validate4 finish",
     .during = InPiece(3, 1, {.profile = {.id = 7, .steps = 1}})},
    {.name = "StopRetriesAFailedSave",
     .options = Validating(1, 9),
     .expected = "begin2 train2>3 update3 | validate3 - save3? answer validate3 - save3?! stop",
     .during =
         [](int64_t step, int piece) {
           return Agreed{.checkpoint = step == 3 && piece == 1, .stop = step == 3 && piece == 2};
         },
     .saves_fail = true},
    {"SaveBesideTrainingNeedsNoUpdate",
     {.last_step = 6, .checkpoint_every = 2, .has_directory = true, .saves_beside = true},
     "begin1 train1>2 save2&train2>3 train3>4 save4&train4>5 train5>6 update6 | save6! finish"},
    {"ValidatedStepEndsTheRunBesideASave",
     {.last_step = 6,
      .validate_every = 4,
      .checkpoint_every = 2,
      .has_directory = true,
      .saves_beside = true},
     "validate0 begin1 train1>2 save2&train2>3 train3>4 update4 | validate4 save4 begin5 train5>6 update6 | "
     "validate6 save6! finish"},
    {"CopyWaitsForThePreviousSave",
     {.last_step = 4, .checkpoint_every = 1, .has_directory = true, .saves_beside = true},
     "begin1 save1&train1>2 | save2&train2>3 | save3&train3>4 update4 | save4! finish"},
    {"NextRunSavesOnRequest",
     {.last_step = 5, .has_directory = true, .saves_beside = true},
     "begin1 train1>2 | save2&train2>3 train3>4 train4>5 update5 | save5! finish",
     [](int64_t step) { return Agreed{.checkpoint = step == 1 || step == 2}; }},
    {"AStopSavesWhereNothingIsInFlight",
     {.last_step = 9, .checkpoint_every = 3, .has_directory = true, .saves_beside = true},
     "begin1 train1>2 train2>3 update3 | save3! stop",
     InStep(2, kStop)},
    {"WithoutADirectoryNothingIsSaved",
     {.last_step = 4, .checkpoint_every = 1},
     "begin1 train1>2 update2 | answer begin3 train3>4 update4 | finish",
     InStep(1, kCheckpoint)},
    {"StopInTheLastStepFinishes",
     {.last_step = 2, .has_directory = true},
     "begin1 train1>2 update2 | save2! finish",
     InStep(2, kStop)},
    {"RecordedRunIsAlone",
     {.last_step = 8},
     "begin1 train1>2 | train2>3* | train3>4** | train4>5 train5>6 train6>7 train7>8 update8 | finish",
     InStep(1, {.profile = {.id = 7, .steps = 1, .serialized = true}})},
    {"UpdateWaitsForARecordedRun",
     {.last_step = 3},
     "begin1 train1>2 | train2>3* | update3 | finish",
     InStep(1, {.profile = {.id = 7, .steps = 1}})},
    {"RepeatedProfileIsRecordedOnce",
     {.last_step = 5},
     "begin1 train1>2 | train2>3* | train3>4 train4>5 update5 | finish",
     [](int64_t step) { return step <= 2 ? Agreed{.profile = {.id = 7, .steps = 1}} : Agreed{}; }},
    {"ProfileEndsDespiteBoundaries",
     {.last_step = 4, .checkpoint_every = 1, .has_directory = true},
     "begin1 update1 | save1 begin2* | update2 | save2 begin3* | update3 | save3 begin4 update4 | save4! "
     "finish",
     InStep(1, {.profile = {.id = 7, .steps = 2}})},
};

INSTANTIATE_TEST_SUITE_P(, RunSequenceRowTest, testing::ValuesIn(kRows),
                         [](const auto& test) { return test.param.name; });

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

}  // namespace
}  // namespace tandem::trainer
