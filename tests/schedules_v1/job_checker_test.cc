#include "schedules_v1/job_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules_v1/text.h"
#include "tests/schedules/program_edits.h"
#include "tests/schedules/test_outline.h"

namespace tandem::schedules_v1 {
namespace {

using testing::HasSubstr;

class JobCheckerTest : public testing::Test {
 protected:
  JobCheckerTest() { ShareSlots(train_, validate_); }

  std::string Message(const Program& train, const Program& validate, const Program& snapshot) const {
    return std::string(
        CheckJob(outline_, {.train = &train, .validate = &validate, .snapshot = &snapshot}).message());
  }

  const Outline outline_ = TestOutline(2, /*tied=*/true);
  Program train_ = BuildTrainProgram(outline_, TestOptions(outline_, 1), 2);
  Program validate_ = BuildValidateProgram(outline_, TestOptions(outline_, 1), 3);
  const Program snapshot_ = BuildSnapshotProgram();
};

TEST_F(JobCheckerTest, AcceptsTrainingAloneAndWithAllThatCanStandBetweenSteps) {
  EXPECT_EQ(CheckJob(outline_, {.train = &train_}), absl::OkStatus());
  EXPECT_EQ(CheckJob(outline_, {.train = &train_, .snapshot = &snapshot_}), absl::OkStatus());
  EXPECT_EQ(CheckJob(outline_, {.train = &train_, .validate = &validate_, .snapshot = &snapshot_}),
            absl::OkStatus());
}

TEST_F(JobCheckerTest, EveryProgramIsChecked) {
  Program train = train_;
  train.instructions[3].waits.clear();
  EXPECT_THAT(Message(train, validate_, snapshot_), HasSubstr("train 3"));
  Program validate = validate_;
  validate.instructions[3].waits.clear();
  EXPECT_THAT(Message(train_, validate, snapshot_), HasSubstr("validate 3"));
  Program snapshot = snapshot_;
  snapshot.instructions.push_back(snapshot.instructions.front());
  EXPECT_THAT(Message(train_, validate_, snapshot), HasSubstr("a program takes one snapshot"));
}

TEST_F(JobCheckerTest, ASnapshotInsideAStepIsRefused) {
  Program train = train_;
  train.instructions.push_back(snapshot_.instructions.front());
  EXPECT_THAT(Message(train, validate_, snapshot_), HasSubstr("a snapshot is a program of its own"));
}

TEST_F(JobCheckerTest, ProgramsThatDisagreeOnTheirSlotsAreRefused) {
  Program validate = validate_;
  validate.parameter_slot_bytes[1] *= 2;
  EXPECT_EQ(Message(train_, validate, snapshot_),
            "train and validate run on the same slots, but do not agree on the parameter slots p1: 2 x 2048 "
            "bytes and 2 x 4096 bytes");
  validate = validate_;
  validate.gradient_slots[0] += 1;
  EXPECT_THAT(Message(train_, validate, snapshot_),
              HasSubstr("do not agree on the gradient slots g0: 1 x 4096 bytes and 2 x 4096 bytes"));
  validate = validate_;
  validate.gradient_slots.pop_back();
  validate.gradient_slot_bytes.pop_back();
  EXPECT_THAT(Message(train_, validate, snapshot_), HasSubstr("256 bytes and no such class"));
}

// A builder that takes the wrong program for the validation, or leaves something of the step in it.
TEST_F(JobCheckerTest, BetweenStepsNothingChangesWhatTheNextStepReads) {
  EXPECT_THAT(
      Message(train_, train_, snapshot_),
      HasSubstr("(reduce head mb 0) changes the gradient of head, which between training steps nothing "
                "may"));
  const Program norm_and_step{
      .name = "snapshot",
      .instructions = {{.opcode = Opcode::kGradientNorm,
                        .stream = StreamKind::kReduce,
                        .communicator = Communicator::kNorm},
                       {.opcode = Opcode::kOptimizerStep, .target = 0, .waits = {0}}}};
  EXPECT_THAT(Message(train_, validate_, norm_and_step),
              HasSubstr("snapshot 0 (gradient-norm) is of no microbatch"));
}

// What an earlier program leaves open, the next one would find: each pair of programs that can meet at a
// seam.
TEST_F(JobCheckerTest, NothingStaysOpenAcrossASeam) {
  const auto without = [this](const Program& program, const std::string& text) {
    for (int i = static_cast<int>(program.instructions.size()) - 1; i >= 0; --i) {
      if (ToText(program.instructions[i], outline_) == text) {
        return Without(program, i);
      }
    }
    ADD_FAILURE() << "no instruction " << text;
    return program;
  };
  EXPECT_THAT(
      Message(without(train_, "reshard layers.0 mb 1"), validate_, snapshot_),
      HasSubstr("(optimizer layers.0) changes weights that are gathered by train 69 (unshard layers.0"));
  EXPECT_THAT(Message(train_, without(validate_, "reshard layers.1 mb 2"), snapshot_),
              HasSubstr("(unshard layers.1 mb 2) gathers a unit that is never resharded"));
  EXPECT_THAT(Message(without(train_, "optimizer head"), validate_, snapshot_),
              HasSubstr("(reduce head mb 1) reduces a gradient that no optimizer step uses"));
  EXPECT_THAT(Message(train_, without(validate_, "release tokens mb 2"), snapshot_),
              HasSubstr("(load tokens mb 2) writes tokens, which is never released"));
}

TEST_F(JobCheckerTest, ACommunicatorKeepsItsStreamInAllPrograms) {
  Program validate = validate_;
  for (Instruction& instruction : validate.instructions) {
    if (instruction.stream == StreamKind::kGather) {
      instruction.stream = StreamKind::kSend;
    }
  }
  EXPECT_THAT(Message(train_, validate, snapshot_),
              HasSubstr("uses communicator gather on stream send, train"));
}

}  // namespace
}  // namespace tandem::schedules_v1
