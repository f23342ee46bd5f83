// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/schedules/check/edited_stage.h"

namespace tandem::schedules {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(MeantTest, UnreducedContributionIsMissingFromTheGradient) {
  EditedStage edited(SmallDecoder(4));
  // What its last part wrote goes nowhere: another buffer of the same unit is reduced twice.
  Program& train = edited.stage.train;
  edited.Find(train, "reduce layers.3 mb 1").operands[0].buffer =
      edited.BufferNamed(train, "layers.3 contribution mb 0");
  WaitAnew(edited, train);
  EXPECT_EQ(edited.Check(),
            "meant: train: the contribution of layers.3.attention and layers.3.mlp of microbatch 1 is "
            "missing from the "
            "gradient of layers.3");
}

TEST(MeantTest, UnwrittenPartIsMissingFromTheGradient) {
  EditedStage edited(SmallDecoder(4), "zero3", 2);
  Program& train = edited.stage.train;
  // The mlp's gradient of microbatch 1 goes over that of microbatch 0, which is reduced by now.
  Instruction& reduce = edited.Find(train, "backward-input layers.3.mlp mb 1");
  for (Operand& operand : reduce.operands) {
    if (train.buffers[operand.buffer].kind == BufferKind::kContribution) {
      operand.buffer = edited.BufferNamed(train, "layers.3 contribution mb 0");
    }
  }
  WaitAnew(edited, train);
  EXPECT_THAT(
      edited.Check(),
      StartsWith(
          "meant: train: the contribution of layers.3.mlp of microbatch 1 is missing from the gradient "
          "of layers.3"));
}

TEST(MeantTest, ContributionReducedTwiceIsFound) {
  EditedStage edited(SmallDecoder(2), "zero3", 1);
  Program& train = edited.stage.train;
  const int i = edited.IndexOf(train, "reduce layers.1 mb 0");
  Instruction again = train.instructions[i];
  again.operands[2].mode = Mode::kAdds;
  EditedStage::Insert(train, i + 1, again);
  WaitAnew(edited, train);
  EXPECT_EQ(
      edited.Check(),
      "meant: train: the contribution of layers.1.attention and layers.1.mlp of microbatch 0 is twice in the "
      "gradient of layers.1");
}

TEST(MeantTest, ContributionsAreAddedInTheOrderOfMicrobatches) {
  EditedStage edited(SmallDecoder(2), "zero3", 3);
  Program& train = edited.stage.train;
  const int first = edited.IndexOf(train, "reduce layers.1 mb 1");
  const int second = edited.IndexOf(train, "reduce layers.1 mb 2");
  std::swap(train.instructions[first].operands[0], train.instructions[second].operands[0]);
  const Instruction moved = train.instructions[first];
  EditedStage::Remove(train, first);
  EditedStage::Insert(train, second - 1, moved);  // behind both contributions
  WaitAnew(edited, train);
  EXPECT_EQ(edited.Check(),
            "meant: train: the contribution of layers.1.attention and layers.1.mlp of microbatch 2 is out of "
            "order in "
            "the gradient of layers.1");
}

TEST(MeantTest, FirstReductionOverwritesTheFormerGradient) {
  EditedStage edited(SmallDecoder(2));
  edited.Find(edited.stage.train, "reduce layers.1 mb 0").operands[2].mode = Mode::kAdds;
  EXPECT_EQ(
      edited.Check(),
      "meant: train: the gradient of layers.1 is added to that of the former run instead of overwriting it");
}

TEST(MeantTest, GatherBeforeOptimizerStepReadsOldParameters) {
  EditedStage edited(SmallDecoder(2));
  Program& train = edited.stage.train;
  const int gather = edited.IndexOf(train, "unshard layers.0 mb 0");
  const Instruction moved = train.instructions[gather];
  EditedStage::Remove(train, gather);
  EditedStage::Insert(train, edited.IndexOf(train, "optimizer layers.0"), moved);
  WaitAnew(edited, train);
  EXPECT_EQ(edited.Check(), "meant: train: layers.0 is read as it was before its optimizer step");
}

TEST(MeantTest, AStepThatIsLeftOutIsMissed) {
  EditedStage edited(SmallDecoder(1));
  Program& update = edited.stage.update;
  EditedStage::Remove(update, edited.IndexOf(update, "optimizer layers.0"));
  EXPECT_EQ(edited.Check(), "meant: update: layers.0 misses its optimizer step");
}

TEST(MeantTest, SnapshotSavesTheUpdatedState) {
  EditedStage edited(SmallDecoder(1));
  edited.options.saves = true;
  edited.stage = BuildStage(edited.outline, edited.options).value();
  EXPECT_EQ(edited.Check(), "");
  const EditedStage whole = edited;
  Program& saves = edited.stage.train_save;
  const int step = edited.IndexOf(saves, "optimizer layers.0");
  const Instruction moved = saves.instructions.at(step + 1);
  ASSERT_EQ(moved.opcode, Opcode::kSnapshot);
  EditedStage::Remove(saves, step + 1);
  EXPECT_THAT(edited.Check(), StartsWith("meant: train_save: "));
  EditedStage::Insert(saves, step, moved);
  WaitAnew(edited, saves);
  EXPECT_THAT(edited.Check(), StartsWith("meant: train_save: "));
  edited.stage = whole.stage;
  edited.stage.train_save.instructions[step + 1].waits.clear();
  EXPECT_THAT(edited.Check(), StartsWith("ordered: train_save: "));
}

TEST(MeantTest, TheLossOfEveryMicrobatchIsReported) {
  EditedStage edited(SmallDecoder(1));
  Instruction& report = edited.stage.train.instructions.back();
  ASSERT_EQ(report.opcode, Opcode::kReport);
  std::vector<Operand>& operands = report.operands;
  const size_t half = operands.size() / 2;
  operands.erase(operands.begin() + static_cast<int64_t>(half));  // host loss mb 0
  operands.erase(operands.begin());
  EXPECT_THAT(edited.Check(), StartsWith("meant: train: the report of loss, mb 0 is "));
}

TEST(MeantTest, ARecomputeIsItsForward) {
  EditedStage edited(SmallDecoder(2));
  edited.options.recompute.assign(edited.outline.values.size(), false);
  edited.options.recompute[FindValue(edited.outline, "layers.1.attention.qkv")] = true;
  edited.stage = BuildStage(edited.outline, edited.options).value();
  EXPECT_EQ(edited.Check(), "");
  // It reads another microbatch's input.
  Program& train = edited.stage.train;
  edited.Find(train, "recompute layers.1.attention mb 1").operands[0].buffer =
      edited.BufferNamed(train, "layers.0.mlp.hidden mb 0");
  WaitAnew(edited, train);
  EXPECT_THAT(edited.Check(), StartsWith("meant: train: "));
}

}  // namespace
}  // namespace tandem::schedules
