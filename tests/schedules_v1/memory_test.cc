#include "schedules_v1/memory.h"

#include <gtest/gtest.h>

#include "schedules_v1/block_allocator.h"
#include "tests/schedules/test_outline.h"

namespace tandem::schedules_v1 {
namespace {

// One node that doubles "a" into "b", by hand.
TEST(MemoryTest, FollowsTheExecutorsRuleCallByCall) {
  Outline outline;
  outline.values = {{.name = "tokens", .bytes = {1000, 1000}}, {.name = "loss", .bytes = {8, 16}}};
  outline.batch = 0;
  outline.loss = 1;
  outline.nodes.push_back({.name = "node", .forward = {.reads = {0}, .writes = {1}, .scratch = {100, 300}}});
  Program program{.name = "validate", .num_microbatches = 1};
  program.instructions = {
      {.opcode = Opcode::kLoadBatch, .target = 0, .microbatch = 0},
      {.opcode = Opcode::kForward, .target = 0, .microbatch = 0},
      {.opcode = Opcode::kRelease, .target = 0, .microbatch = 0},
      {.opcode = Opcode::kReport},
      {.opcode = Opcode::kRelease, .target = 1, .microbatch = 0},
  };
  const MemoryCurve curve = ReplayMemory(outline, program, {500});
  ASSERT_EQ(curve.points.size(), 5u);
  EXPECT_EQ(curve.points[0].in_use, 512 + 1024);
  EXPECT_EQ(curve.points[1].in_use, 512 + 1024 + 256 + 512);
  EXPECT_EQ(curve.points[2].in_use, 512 + 256) << "scratch is free once its instruction is issued";
  EXPECT_EQ(curve.points[3].in_use, 512 + 256);
  EXPECT_EQ(curve.points[4].in_use, 512);
  EXPECT_EQ(curve.peak_bytes, 512 + 1024 + 256 + 512);
  EXPECT_EQ(curve.peak_instruction, 1);
  EXPECT_EQ(curve.peak_in_use, 512 + 1024 + 256 + 512);
  EXPECT_EQ(curve.peak, (MemoryUse{.activations = 1016, .gradients = 0, .scratch = 300}))
      << "bounds, as asked for";
}

TEST(MemoryTest, EverythingComesBackAndThePeakDoesNotDependOnAccumulation) {
  for (const bool tied : {false, true}) {
    const Outline outline = TestOutline(3, tied);
    const FsdpOptions options = TestOptions(outline, 1);
    const MemoryCurve one = ReplayMemory(outline, BuildTrainProgram(outline, options, 1), {1000, 300});
    const MemoryCurve four = ReplayMemory(outline, BuildTrainProgram(outline, options, 4), {1000, 300});
    EXPECT_EQ(one.points.back().in_use, 1024 + 512);
    EXPECT_EQ(four.points.back().in_use, 1024 + 512);
    // Only the losses of earlier microbatches stay: one block each.
    EXPECT_EQ(four.peak_in_use - one.peak_in_use, 3 * BlockAllocator::kAlignment);
    EXPECT_GE(one.peak_bytes, one.peak_in_use);
  }
}

TEST(MemoryTest, ThePeakIsTheHighestPointAndItsPartsAddUp) {
  const Outline outline = TestOutline(4, /*tied=*/false);
  const Program program = BuildTrainProgram(outline, TestOptions(outline, 1), 2);
  const MemoryCurve curve = ReplayMemory(outline, program, {});
  int64_t highest = 0;
  for (const MemoryPoint& point : curve.points) {
    highest = std::max(highest, point.in_use);
    EXPECT_LE(point.in_use, point.extent);
  }
  EXPECT_EQ(curve.peak_in_use, highest);
  EXPECT_EQ(curve.points[curve.peak_instruction].in_use, highest);
  EXPECT_LE(curve.peak.total(), highest);
  EXPECT_EQ(program.instructions[curve.peak_instruction].opcode, Opcode::kBackward);
}

TEST(MemoryTest, ValidationNeedsLessThanTraining) {
  const Outline outline = TestOutline(4, /*tied=*/false);
  const FsdpOptions options = TestOptions(outline, 1);
  EXPECT_LT(ReplayMemory(outline, BuildValidateProgram(outline, options, 8), {}).peak_bytes,
            ReplayMemory(outline, BuildTrainProgram(outline, options, 2), {}).peak_bytes);
}

}  // namespace
}  // namespace tandem::schedules_v1
