// SPDX-License-Identifier: Apache-2.0
#include "schedules/simulate/memory_curve.h"

#include <gtest/gtest.h>

#include "schedules/simulate/simulator.h"
#include "tests/schedules/simulate/hand_program.h"

namespace tandem::schedules {
namespace {

constexpr int kGathered = static_cast<int>(BufferKind::kGathered);
constexpr int kActivation = static_cast<int>(BufferKind::kActivation);

MemoryCurve HandCurve(const Program& program) {
  return MemoryOverTime(program, Simulate(HandOutline(), program, HandWorkload(), HandProfile()).timeline);
}

TEST(MemoryCurveTest, BuffersAreUsedFromFirstToLastAccess) {
  const MemoryCurve curve = HandCurve(HandProgram());
  // Gathers 0, 2 and 4 start at 0, 1000 and 7000 and are last read until 5000, 7000 and 12000; hidden is
  // written from 1000 and, by this program, again until 12000.
  std::vector<std::pair<int64_t, int64_t>> gathered;
  for (const MemoryPoint& point : curve.points) {
    gathered.emplace_back(point.ns, point.locals[kGathered]);
  }
  EXPECT_EQ(gathered, (std::vector<std::pair<int64_t, int64_t>>{
                          {0, 2000}, {1000, 4000}, {5000, 2000}, {7000, 2000}, {12000, 0}}))
      << "at 7000 one goes as the other comes";
  EXPECT_EQ(curve.points[1].locals[kActivation], 600);
  EXPECT_EQ(curve.peak, 1);
  EXPECT_EQ(curve.peak_bytes, 4600);
  EXPECT_EQ(Total(curve.points.back().locals), 0);
  EXPECT_EQ(curve.persistent[static_cast<int>(BufferKind::kWeights)], 2000);
}

TEST(MemoryCurveTest, RingsCountTwiceHostMemoryDoesNot) {
  Program program = HandProgram();
  program.buffers.push_back(
      {.name = "outcome", .kind = BufferKind::kOutcome, .life = Life::kRing, .bytes = {100, 100}});
  program.buffers.push_back(
      {.name = "host outcome", .kind = BufferKind::kHostOutcome, .life = Life::kRing, .bytes = {100, 100}});
  program.buffers.push_back({.name = "sizes", .kind = BufferKind::kSizes, .bytes = {64, 64}});
  program.instructions[1].operands.push_back({.buffer = 8, .mode = Mode::kWrites});
  const MemoryCurve curve = HandCurve(program);
  EXPECT_EQ(Total(curve.persistent), 2000 + 200);
  EXPECT_EQ(curve.peak_bytes, 4600);
}

TEST(MemoryCurveTest, ABufferCountsItsBound) {
  Program program = HandProgram();
  program.buffers[5].bytes = {600, 9000};
  EXPECT_EQ(HandCurve(program).peak_bytes, 4000 + 9000);
}

TEST(MemoryCurveTest, WithoutLocalsThereIsNoCurve) {
  const MemoryCurve curve = MemoryOverTime({}, {});
  EXPECT_TRUE(curve.points.empty());
  EXPECT_EQ(curve.peak, -1);
}

}  // namespace
}  // namespace tandem::schedules
