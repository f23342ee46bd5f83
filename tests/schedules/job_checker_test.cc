#include "schedules/job_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules/text.h"
#include "tests/schedules/test_outline.h"

namespace tandem::schedules {
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
  EXPECT_THAT(Message(train_, validate, snapshot_), HasSubstr("do not agree on the parameter slots"));
  validate = validate_;
  validate.gradient_slots[0] += 1;
  EXPECT_THAT(Message(train_, validate, snapshot_), HasSubstr("do not agree on the gradient slots"));
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
}  // namespace tandem::schedules
