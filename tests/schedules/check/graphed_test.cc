// SPDX-License-Identifier: Apache-2.0
#include "schedules/check/graphed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/schedules/check/edited_stage.h"

namespace tandem::schedules {
namespace {

using ::testing::HasSubstr;

// A decoder whose layers and head are replayed, on one rank: the forward of a microbatch's layers is one
// segment.
EditedStage Replayed() {
  EditedStage edited(SmallDecoder(2), "zero3", 2, 1);
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

TEST(GraphedTest, OnlyTheLastOfASegmentIsWaitedFor) {
  EditedStage edited = Replayed();
  Program& train = edited.stage.train;
  const int early = edited.IndexOf(train, "forward layers.0.attention mb 0");
  edited.Find(train, "reduce layers.0 mb 0").waits.push_back({early});
  EXPECT_THAT(CheckOf(edited), HasSubstr("(forward layers.0.attention mb 0), which is not the last of its"));
}

TEST(GraphedTest, NothingInRingsOrOnTheHostIsTouched) {
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

TEST(GraphedTest, ASegmentIsOneRunOfOneStreamAndMicrobatch) {
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

// A Copy moves one microbatch's part of a ring, to or from what segments access instead.
TEST(GraphedTest, ACopyIsOfARingAndItsLocal) {
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
