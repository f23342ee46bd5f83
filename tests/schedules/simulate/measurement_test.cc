// SPDX-License-Identifier: Apache-2.0
#include "schedules/simulate/measurement.h"

#include <gtest/gtest.h>

#include "schedules/simulate/simulator.h"
#include "tests/schedules/simulate/hand_program.h"

namespace tandem::schedules {
namespace {

const MeasuredTime& Find(const std::vector<MeasuredTime>& times, const std::string& kind) {
  for (const MeasuredTime& time : times) {
    if (time.kind == kind) {
      return time;
    }
  }
  static const MeasuredTime none;
  ADD_FAILURE() << "no " << kind;
  return none;
}

Timeline HandRun(int rank, int64_t gather_ns) {
  return {.program = "train",
          .rank = rank,
          .step = 5,
          .instructions = {{0, gather_ns, 100},
                           {10000, 14000, 3000},
                           {10000, 10000 + gather_ns, 100},
                           {20000, 22000, 1000},
                           {30000, 30000 + gather_ns, 100},
                           {40000, 46000, 5000}}};
}

TEST(MeasurementTest, CollectiveTakesTheLastRanksTime) {
  const std::vector<MeasuredTime> times =
      MeasureTimes(HandOutline(), HandProgram(), HandWorkload(), {HandRun(0, 9000), HandRun(1, 2000)});
  const MeasuredTime& gather = Find(times, "unshard layers.*");
  EXPECT_NEAR(gather.seconds, 2e-6, 1e-15);
  EXPECT_NEAR(gather.cpu_seconds, 100e-9, 1e-15);
  EXPECT_EQ(gather.work.link_bytes, 2000);
  EXPECT_EQ(gather.work.ranks, 2);
  EXPECT_EQ(gather.samples, 3);
}

// Steps are sums: what is slow now and then is in them, too.
TEST(MeasurementTest, AKindTakesTheMeanOfItsInstructions) {
  Timeline slow = HandRun(1, 1000);
  slow.instructions[1].cpu_ns = 17000;
  const std::vector<MeasuredTime> times =
      MeasureTimes(HandOutline(), HandProgram(), HandWorkload(), {HandRun(0, 1000), slow});
  EXPECT_NEAR(Find(times, "forward layers.*.a fp32").seconds, 7.5e-6, 1e-15) << "of 3, 5, 17 and 5 us";
}

TEST(MeasurementTest, ComputeOnSharedProcessorsCountsProcessorTime) {
  Timeline run = HandRun(0, 1000);
  const auto seconds = [&](const char* kind) {
    return Find(MeasureTimes(HandOutline(), HandProgram(), HandWorkload(), {run}), kind).seconds;
  };
  EXPECT_NEAR(seconds("forward layers.*.a fp32"), 4e-6, 1e-15) << "the mean of 3 and 5 us";
  EXPECT_NEAR(seconds("forward layers.*.b fp32"), 1e-6, 1e-15);
  run.serialized = true;
  EXPECT_NEAR(seconds("forward layers.*.a fp32"), 5e-6, 1e-15) << "of 4 and 6";
  run.serialized = false;
  for (InstructionTime& time : run.instructions) {
    time.cpu_ns = -1;
  }
  EXPECT_NEAR(seconds("forward layers.*.b fp32"), 2e-6, 1e-15);
}

TEST(MeasurementTest, GapsAndWakesMatchTheDevice) {
  DeviceProfile profile = HandProfile();
  profile.gap_seconds = 100e-9;
  profile.wake_seconds = 300e-9;
  const Program program = HandProgram();
  const Timeline timeline = Simulate(HandOutline(), program, HandWorkload(), profile).timeline;
  const Gaps gaps = MeasureGaps(program, {timeline, timeline});
  EXPECT_NEAR(gaps.gap_seconds, 100e-9, 1e-12);
  EXPECT_NEAR(gaps.wake_seconds, 300e-9, 1e-12);
  EXPECT_EQ(MeasureGaps(program, {}).wake_seconds, 0);
}

TEST(MeasurementTest, SkewIsTheAverageWaitForTheLast) {
  const Program program = HandProgram();
  const Timeline last = Simulate(HandOutline(), program, HandWorkload(), HandProfile()).timeline;
  Timeline early = last;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (program.instructions[i].communicator >= 0) {
      early.instructions[i].start_ns -= 600;
    }
  }
  EXPECT_NEAR(MeasureSkew(program, {last, early}), 300e-9, 1e-12);
  EXPECT_EQ(MeasureSkew(program, {last}), 0);
  EXPECT_EQ(MeasureSkew(program, {}), 0);
}

}  // namespace
}  // namespace tandem::schedules
