// SPDX-License-Identifier: Apache-2.0
#include "schedules/passes/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "schedules/check/check.h"
#include "schedules/program/signature.h"
#include "schedules/program/text.h"
#include "tests/schedules/proven_stage.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::schedules {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

std::vector<bool> KindsOf(const Outline& outline, const std::set<std::string>& kinds) {
  std::vector<bool> replayed;
  for (const Node& node : outline.nodes) {
    replayed.push_back(kinds.count(node.kind) > 0);
  }
  return replayed;
}

// On one rank nothing is gathered, so that nothing is waited for between passes.
Program TrainOf(const Outline& outline, const std::set<std::string>& kinds, int num_microbatches = 2,
                int ranks = 1, Schedule schedule = Schedule::kSequential) {
  BuildOptions options = OptionsFor(outline, "zero3", num_microbatches, ranks);
  options.hold = HoldOf(schedule);
  options.replayed = KindsOf(outline, kinds);
  return ProvenStage(outline, options, schedule).train;
}

std::vector<std::vector<std::string>> SegmentTexts(const Outline& outline, const Program& program) {
  std::vector<std::vector<std::string>> texts;
  for (int i = 0, end = 0; i < static_cast<int>(program.instructions.size()); i = end) {
    end = SegmentEnd(program, i);
    if (program.instructions[i].segment >= 0) {
      texts.emplace_back();
      for (int k = i; k < end; ++k) {
        texts.back().push_back(ToText(program.instructions[k], outline));
      }
    }
  }
  return texts;
}

TEST(SegmentsTest, PassesOfALayerAreOneSegment) {
  const Outline outline = SmallDecoder(1);
  const auto segments = SegmentTexts(outline, TrainOf(outline, {"attention", "mlp"}, 1));
  ASSERT_THAT(segments, SizeIs(2));
  EXPECT_THAT(segments[0], ElementsAre("forward layers.0.attention mb 0", "forward layers.0.mlp mb 0"));
  EXPECT_THAT(segments[1],
              ElementsAre("backward-input layers.0.mlp mb 0", "backward-input layers.0.attention mb 0"));
}

// The forward of all layers is one segment on one rank; where weights are gathered each layer waits for its
// own, so that no layer starts later than without segments. A layer's gradients are reduced while the layer
// before it goes on.
TEST(SegmentsTest, SegmentEndsWhereItsStreamWaitsOrIsAwaited) {
  const Outline outline = SmallDecoder(3);
  EXPECT_THAT(SegmentTexts(outline, TrainOf(outline, {"attention", "mlp"}, 1)), SizeIs(1 + 3));
  EXPECT_THAT(SegmentTexts(outline, TrainOf(outline, {"attention", "mlp"}, 1, /*ranks=*/2)), SizeIs(3 + 3));
}

TEST(SegmentsTest, ASegmentHasOnlyWhatIsReplayed) {
  const Outline outline = SmallDecoder(2);
  for (const std::vector<std::string>& segment : SegmentTexts(outline, TrainOf(outline, {"attention"}, 1))) {
    EXPECT_THAT(segment, SizeIs(1));
  }
  EXPECT_THAT(SegmentTexts(outline, TrainOf(outline, {})), SizeIs(0));
}

TEST(SegmentsTest, ValidationsAndUpdatesHaveNone) {
  const Outline outline = SmallDecoder(1);
  BuildOptions options = OptionsFor(outline, "zero3", 2, 1);
  options.replayed = KindsOf(outline, {"attention", "mlp"});
  options.saves = true;
  const StagePrograms stage = ProvenStage(outline, options);
  EXPECT_FALSE(SegmentTexts(outline, stage.begin).empty());
  EXPECT_EQ(SegmentTexts(outline, stage.begin), SegmentTexts(outline, stage.train));
  EXPECT_EQ(SegmentTexts(outline, stage.train_save), SegmentTexts(outline, stage.train));
  EXPECT_TRUE(SegmentTexts(outline, stage.validate).empty());
  EXPECT_TRUE(SegmentTexts(outline, stage.update).empty());
}

// The head reads the batch and writes the loss: both are copied, outside of its segments.
TEST(SegmentsTest, WhatIsInRingsIsCopied) {
  const Outline outline = SmallDecoder(1);
  const Program train = TrainOf(outline, {"head"}, 2);
  ASSERT_EQ(Count(train, Opcode::kCopy), 2 * 2);
  for (const Instruction& in : train.instructions) {
    for (const Operand& operand : in.operands) {
      EXPECT_TRUE(in.segment < 0 || train.buffers[operand.buffer].life != Life::kRing);
    }
  }
  EXPECT_EQ(Count(TrainOf(outline, {"mlp"}), Opcode::kCopy), 0);
}

// permute writes what the host reads.
TEST(SegmentsTest, WhatTouchesTheHostIsNotReplayed) {
  const Outline outline = MoeDecoder(1);
  for (const std::vector<std::string>& segment :
       SegmentTexts(outline, TrainOf(outline, {"attention", "route", "permute", "dispatch"}, 2, 4))) {
    for (const std::string& pass : segment) {
      EXPECT_EQ(pass.find("dispatch"), std::string::npos);
      EXPECT_NE(pass, "forward layers.0.permute mb 0");
    }
  }
}

// One microbatch after the other is done with its memory before the next begins.
TEST(SegmentsTest, MicrobatchesOfASequentialScheduleShareGraphs) {
  const Outline outline = SmallDecoder(2);
  for (const int ranks : {1, 2, 4}) {
    const Program one = TrainOf(outline, {"attention", "mlp"}, 1, ranks);
    const Program four = TrainOf(outline, {"attention", "mlp"}, 4, ranks);
    EXPECT_EQ(ShareAddresses(four).period, 1);
    EXPECT_EQ(CountGraphs(four), CountGraphs(one)) << ranks << " ranks";
    EXPECT_EQ(CountPassesOfGraphs(four), CountPassesOfGraphs(one)) << ranks << " ranks";
    EXPECT_THAT(SegmentTexts(outline, four), SizeIs(4 * SegmentTexts(outline, one).size()));
  }
}

// Two microbatches are in flight.
TEST(SegmentsTest, MicrobatchesOfAnOverlappedScheduleTakeTurns) {
  const Outline outline = MoeDecoder(2);
  for (const Schedule schedule : {Schedule::kOverlapped, Schedule::kOverlappedUndelayed}) {
    const Program train = TrainOf(outline, {"attention"}, 6, 4, schedule);
    const int period = ShareAddresses(train).period;
    EXPECT_GE(period, 2);
    EXPECT_LT(period, 6);
    EXPECT_LT(CountGraphs(train), static_cast<int>(SegmentTexts(outline, train).size()));
  }
}

TEST(SegmentsTest, BeginningAndSavingReplayTheSameGraphs) {
  const Outline outline = SmallDecoder(2);
  BuildOptions options = OptionsFor(outline, "zero2", 3, 2);
  options.replayed = KindsOf(outline, {"attention", "mlp"});
  options.saves = true;
  const StagePrograms stage = ProvenStage(outline, options);
  std::map<std::string, int64_t> addresses;
  for (const Buffer& buffer : stage.train.buffers) {
    addresses[buffer.name] = buffer.address;
  }
  for (const Program* program : {&stage.begin, &stage.train_save}) {
    for (const Instruction& in : program->instructions) {
      for (const Operand& operand : in.operands) {
        const Buffer& buffer = program->buffers[operand.buffer];
        EXPECT_TRUE(in.segment < 0 || buffer.address == addresses.at(buffer.name)) << buffer.name;
      }
    }
  }
}

// Of every outline, schedule and strategy that the tests have, and of nodes at random, the check accepts the
// programs, and a segment is what it promises (CheckGraphed).
TEST(SegmentsTest, ProgramsOfAnyJobHaveSoundSegments) {
  int segments = 0;
  int graphs = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const bool sparse = seed % 3 == 0;
    const Outline outline = sparse ? MoeDecoder(2) : RandomOutline(seed);
    BuildOptions options = sparse ? OptionsFor(outline, "zero3", 3, 4) : RandomOptions(outline, seed);
    for (size_t n = 0; n < outline.nodes.size(); ++n) {
      options.replayed.push_back((seed + n) % 4 != 0);
    }
    const bool overlaps = sparse && seed % 2 == 0;
    options.hold = overlaps ? 1 : options.hold;
    const StagePrograms stage =
        BuildStage(outline, options, overlaps ? Schedule::kOverlapped : Schedule::kSequential).value();
    ASSERT_EQ(CheckStage(outline, options, stage), absl::OkStatus());
    segments += static_cast<int>(SegmentTexts(outline, stage.train).size());
    graphs += CountGraphs(stage.train);
  }
  EXPECT_GT(segments, 200);
  EXPECT_LT(graphs, segments);
}

}  // namespace
}  // namespace tandem::schedules
