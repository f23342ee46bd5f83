// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "schedules/check/rules.h"
#include "schedules/passes/segments.h"
#include "tests/schedules/check/edited_stage.h"

namespace tandem::schedules {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A decoder whose layers and head are replayed; on one rank the forward of a microbatch's layers is one
// segment.
EditedStage Replayed(int ranks = 1) {
  EditedStage edited(SmallDecoder(2), "zero3", /*num_microbatches=*/2, ranks);
  for (const Node& node : edited.outline.nodes) {
    edited.options.replayed.push_back(node.kind != "embedding");
  }
  edited.stage = BuildStage(edited.outline, edited.options).value();
  return edited;
}

std::string CheckOf(const EditedStage& edited) {
  return std::string(CheckGraphed(edited.outline, edited.options, edited.stage.train).message());
}

TEST(GraphedTest, WhatIsBuiltIsAccepted) { EXPECT_EQ(Replayed().Check(), ""); }

TEST(GraphedTest, OnlyTheFirstOfASegmentWaits) {
  EditedStage edited = Replayed();
  edited.Find(edited.stage.train, "forward layers.1.mlp mb 0").waits.push_back({0});
  EXPECT_THAT(CheckOf(edited), HasSubstr("waits, but is not the first of its segment"));
}

TEST(GraphedTest, OnlyASegmentsLastIsWaitedFor) {
  EditedStage edited = Replayed();
  Program& train = edited.stage.train;
  const int early = edited.IndexOf(train, "forward layers.0.attention mb 0");
  edited.Find(train, "reduce layers.0 mb 0").waits.push_back({early});
  EXPECT_THAT(CheckOf(edited), HasSubstr("(forward layers.0.attention mb 0), which is not the last of its"));
}

TEST(GraphedTest, SegmentsTouchNoRingsOrHostMemory) {
  EditedStage edited = Replayed();
  Program& train = edited.stage.train;
  edited.Find(train, "forward layers.0.mlp mb 0")
      .operands.push_back({.buffer = edited.BufferNamed(train, "inputs"), .role = Role::kInputs});
  EXPECT_THAT(CheckOf(edited), HasSubstr("touches inputs, which is elsewhere in the next run"));
}

TEST(GraphedTest, OnlyPassesOfReplayedNodesAreInSegments) {
  EditedStage edited = Replayed();
  edited.Find(edited.stage.train, "forward embedding mb 0").segment = 1000;
  EXPECT_THAT(CheckOf(edited), HasSubstr("is not a pass of a node that is replayed"));
  edited = Replayed();
  edited.Find(edited.stage.train, "reduce layers.0 mb 0").segment = 1000;
  EXPECT_THAT(CheckOf(edited), HasSubstr("is not a pass of a node that is replayed"));
}

TEST(GraphedTest, SegmentHasOneStreamAndMicrobatch) {
  EditedStage edited = Replayed();
  Program& train = edited.stage.train;
  const int segment = edited.Find(train, "forward layers.0.attention mb 0").segment;
  edited.Find(train, "forward layers.0.attention mb 1").segment = segment;
  EXPECT_THAT(CheckOf(edited), HasSubstr("is in a segment that has ended before it"));
  edited = Replayed();
  edited.Find(edited.stage.train, "forward layers.0.mlp mb 0").stream = 1;
  EXPECT_THAT(CheckOf(edited), HasSubstr("of another stream or microbatch"));
  edited = Replayed();
  edited.Find(edited.stage.train, "forward layers.0.mlp mb 0").microbatch = 1;
  EXPECT_THAT(CheckOf(edited), HasSubstr("of another stream or microbatch"));
}

TEST(GraphedTest, NothingInASegmentCommunicates) {
  EditedStage edited = Replayed();
  edited.Find(edited.stage.train, "forward layers.0.mlp mb 0").communicator = 0;
  EXPECT_THAT(CheckOf(edited), HasSubstr("is in a segment, but communicates"));
}

// What makes graphs change bits elsewhere is a fault of the program here, planted below: each is refused, by
// the rule whose promise it breaks. Faults of captures and replays: tests/parity/broken_graphs_test.cc.

TEST(GraphedTest, TheLearningRateIsInNoGraph) {
  EditedStage edited = Replayed();
  edited.Find(edited.stage.train, "optimizer layers.0").segment = 1000;
  EXPECT_THAT(CheckOf(edited), HasSubstr("is not a pass of a node that is replayed"));
}

// The batch is in a ring: what a segment reads instead is copied before it.
TEST(GraphedTest, WhatASegmentReadsIsWrittenBeforeIt) {
  EditedStage edited = Replayed();
  Program& train = edited.stage.train;
  EditedStage::Remove(train, edited.IndexOf(train, "copy mb 0"));
  EXPECT_THAT(edited.Check(), HasSubstr("meant: "));
}

TEST(GraphedTest, PassesOfASegmentKeepTheirOrder) {
  EditedStage edited = Replayed();
  Program& train = edited.stage.train;
  Instruction& attention = edited.Find(train, "forward layers.0.attention mb 0");
  Instruction& mlp = edited.Find(train, "forward layers.0.mlp mb 0");
  ASSERT_EQ(attention.segment, mlp.segment);
  std::swap(attention, mlp);
  WaitAnew(edited, train);
  EXPECT_THAT(edited.Check(), HasSubstr("meant: "));
}

// The first contribution of a microbatch overwrites what was there.
TEST(GraphedTest, GradientsStartFromNothing) {
  EditedStage edited = Replayed();
  Program& train = edited.stage.train;
  Instruction& backward = edited.Find(train, "backward-input layers.0.mlp mb 0");
  ASSERT_GE(backward.segment, 0);
  const auto gradient =
      std::find_if(backward.operands.begin(), backward.operands.end(),
                   [](const Operand& operand) { return operand.role == Role::kParameterGradient; });
  ASSERT_NE(gradient, backward.operands.end());
  gradient->mode = Mode::kAdds;
  EXPECT_THAT(edited.Check(), HasSubstr("meant: "));
}

// On two ranks, where weights are gathered: those of another layer, or of the same layer at another time.
TEST(GraphedTest, PassReadsWeightsGatheredForIt) {
  EditedStage edited = Replayed(/*ranks=*/2);
  Program& train = edited.stage.train;
  const auto weights = [&](const std::string& pass) -> Operand& {
    for (Operand& operand : edited.Find(train, pass).operands) {
      if (operand.role == Role::kParameters) {
        return operand;
      }
    }
    throw std::logic_error("no weights in " + pass);
  };
  weights("forward layers.1.attention mb 0").buffer = weights("forward layers.0.attention mb 0").buffer;
  EXPECT_THAT(edited.Check(), Not(IsEmpty()));
}

// Two microbatches are in flight: what one keeps for its backward is not where the other writes.
TEST(GraphedTest, APeriodThatIsTooShortIsRefused) {
  const Outline outline = MoeDecoder(2);
  BuildOptions options = OptionsFor(outline, "zero3", 4, 4);
  options.hold = HoldOf(Schedule::kOverlapped);
  for (const Node& node : outline.nodes) {
    options.replayed.push_back(node.kind == "attention");
  }
  EditedStage edited(outline, BuildStage(outline, options, Schedule::kOverlapped).value());
  edited.options = options;
  ASSERT_EQ(edited.Check(), "");
  Program& train = edited.stage.train;
  ASSERT_GE(ShareAddresses(train).period, 2);
  const Instruction& first = edited.Find(train, "forward layers.0.attention mb 0");
  const Instruction& second = edited.Find(train, "forward layers.0.attention mb 1");
  ASSERT_GE(first.segment, 0);
  for (size_t o = 0; o < first.operands.size(); ++o) {
    if (train.buffers[first.operands[o].buffer].life == Life::kLocal) {
      train.buffers[second.operands[o].buffer].address = train.buffers[first.operands[o].buffer].address;
    }
  }
  EXPECT_THAT(edited.Check(), HasSubstr("apart: "));
}

// A Copy moves one microbatch's part of a ring, to or from what segments access instead.
TEST(GraphedTest, CopyJoinsARingAndItsLocal) {
  EditedStage edited = Replayed();
  Program& train = edited.stage.train;
  Instruction& copy = edited.Find(train, "copy mb 1");
  copy.operands[0].part = 0;
  EXPECT_THAT(edited.Check(), HasSubstr("meant: "));
  copy.operands[0].part = -1;
  EXPECT_THAT(edited.Check(), HasSubstr("which is not its ring or its local"));
}

}  // namespace
}  // namespace tandem::schedules
