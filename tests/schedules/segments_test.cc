// SPDX-License-Identifier: Apache-2.0
#include "schedules/passes/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "schedules/build/program_builder.h"
#include "schedules/program/text.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::schedules {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

std::vector<bool> KindsOf(const Outline& outline, const std::set<std::string>& kinds) {
  std::vector<bool> scope;
  for (const Node& node : outline.nodes) {
    scope.push_back(kinds.count(node.kind) > 0);
  }
  return scope;
}

std::vector<std::string> Texts(const Outline& outline, const Program& program, const Segment& segment) {
  std::vector<std::string> texts;
  for (const int i : segment.instructions) {
    texts.push_back(ToText(program.instructions[i], outline));
  }
  return texts;
}

// One rank gathers nothing, so that nothing is waited for between passes.
Program TrainOn(const Outline& outline, int ranks, int num_microbatches = 2) {
  return BuildStage(outline, OptionsFor(outline, "zero3", num_microbatches, ranks)).value().train;
}

TEST(SegmentsTest, PassesOfALayerAreOneSegment) {
  const Outline outline = SmallDecoder(1);
  const Program train = TrainOn(outline, 1, 1);
  const std::vector<Segment> segments = SegmentsOf(train, KindsOf(outline, {"attention", "mlp"}));
  ASSERT_THAT(segments, SizeIs(2));
  EXPECT_THAT(Texts(outline, train, segments[0]),
              ElementsAre("forward layers.0.attention mb 0", "forward layers.0.mlp mb 0"));
  EXPECT_THAT(Texts(outline, train, segments[1]),
              ElementsAre("backward-input layers.0.mlp mb 0", "backward-input layers.0.attention mb 0"));
}

TEST(SegmentsTest, ASegmentHasOnlyWhatIsInScope) {
  const Outline outline = SmallDecoder(2);
  const Program train = TrainOn(outline, 1, 1);
  const std::vector<Segment> segments = SegmentsOf(train, KindsOf(outline, {"attention"}));
  ASSERT_THAT(segments, SizeIs(4));
  for (const Segment& segment : segments) {
    EXPECT_THAT(segment.instructions, SizeIs(1));
  }
  EXPECT_THAT(SegmentsOf(train, KindsOf(outline, {})), SizeIs(0));
}

TEST(SegmentsTest, ASegmentEndsWithItsMicrobatch) {
  const Outline outline = SmallDecoder(1);
  BuildOptions options = OptionsFor(outline, "zero3", 4, 1);
  options.hold = 1;
  const Program train = BuildStage(outline, options, Schedule::kOverlapped).value().train;
  for (const Segment& segment : SegmentsOf(train, std::vector<bool>(outline.nodes.size(), true))) {
    for (const int i : segment.instructions) {
      EXPECT_EQ(train.instructions[i].microbatch,
                train.instructions[segment.instructions.front()].microbatch);
    }
  }
}

// What a segment promises, of every outline and many scopes.
TEST(SegmentsTest, NothingInsideASegmentIsWaitedForFromOutside) {
  int num_segments = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Outline outline = seed % 3 == 0 ? MoeDecoder(2) : RandomOutline(seed);
    const Program train =
        BuildStage(outline, seed % 3 == 0 ? OptionsFor(outline, "zero3", 3, 4) : RandomOptions(outline, seed))
            .value()
            .train;
    std::vector<bool> scope;
    for (size_t n = 0; n < outline.nodes.size(); ++n) {
      scope.push_back((seed + n) % 4 != 0);
    }
    std::set<int> members;
    for (const Segment& segment : SegmentsOf(train, scope)) {
      ++num_segments;
      const int first = segment.instructions.front();
      const StreamId stream = train.instructions[first].stream;
      for (const int i : segment.instructions) {
        const Instruction& in = train.instructions[i];
        EXPECT_TRUE(members.insert(i).second) << "seed " << seed << ": " << i << " is in two segments";
        EXPECT_TRUE(scope[in.target]);
        EXPECT_LT(in.communicator, 0);
        EXPECT_EQ(in.stream, stream);
        for (const Wait& wait : in.waits) {
          EXPECT_LT(wait.instruction, first) << "seed " << seed;
        }
      }
      for (int i = first; i <= segment.instructions.back(); ++i) {
        const Instruction& in = train.instructions[i];
        EXPECT_TRUE(in.stream != stream || members.count(i) > 0) << "seed " << seed << ": a gap at " << i;
        EXPECT_NE(in.opcode, Opcode::kHostWait) << "seed " << seed;
      }
    }
    for (size_t i = 0; i < train.instructions.size(); ++i) {
      const Instruction& in = train.instructions[i];
      const bool may = IsNodePass(in.opcode) && scope[in.target] && in.communicator < 0;
      EXPECT_LE(members.count(static_cast<int>(i)), may ? 1u : 0u);
    }
  }
  EXPECT_GT(num_segments, 200);
}

TEST(SegmentsTest, OperandsInRingsAreCounted) {
  const Outline outline = SmallDecoder(1);
  const Program train = TrainOn(outline, 1, 1);
  const std::vector<Segment> heads = SegmentsOf(train, KindsOf(outline, {"head"}));
  ASSERT_THAT(heads, SizeIs(1));
  EXPECT_EQ(heads[0].num_ring_operands, 2) << "targets and the loss";
  EXPECT_EQ(SegmentsOf(train, KindsOf(outline, {"mlp"}))[0].num_ring_operands, 0);
}

TEST(SegmentsTest, SegmentsOnTheSameAddressesShareAGraph) {
  const Outline outline = SmallDecoder(2);
  Program train = TrainOn(outline, 1, 3);
  const std::vector<Segment> segments = SegmentsOf(train, KindsOf(outline, {"mlp"}));
  ASSERT_THAT(segments, SizeIs(12));
  const int graphs = CountGraphs(train, segments);
  EXPECT_GE(graphs, 4) << "two layers, both ways";
  EXPECT_LE(graphs, 12);
  // Microbatches anywhere else: none shares.
  int64_t address = 0;
  for (Buffer& buffer : train.buffers) {
    buffer.address = address;
    address += ExtentOf(buffer) + 256;
  }
  EXPECT_EQ(CountGraphs(train, segments), 12);
  // Everything at one place: microbatches share.
  for (Buffer& buffer : train.buffers) {
    buffer.address = 0;
  }
  EXPECT_EQ(CountGraphs(train, segments), 4);
}

}  // namespace
}  // namespace tandem::schedules
