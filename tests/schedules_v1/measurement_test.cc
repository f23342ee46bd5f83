#include "schedules_v1/measurement.h"

#include <gtest/gtest.h>

#include "schedules_v1/simulator.h"
#include "tests/schedules/hand_program.h"
#include "tests/schedules/test_outline.h"

namespace tandem::schedules_v1 {
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

TEST(MeasurementTest, ACollectiveTakesAsLongAsForTheRankThatCameLast) {
  const std::vector<MeasuredTime> times =
      MeasureTimes(HandOutline(), HandProgram(), HandWorkload(), {HandRun(0, 9000), HandRun(1, 2000)});
  const MeasuredTime& gather = Find(times, "unshard layers.*");
  EXPECT_NEAR(gather.seconds, 2e-6, 1e-15);
  EXPECT_NEAR(gather.cpu_seconds, 100e-9, 1e-15);
  EXPECT_EQ(gather.link_bytes, 2000);
  EXPECT_EQ(gather.ranks, 2);
  EXPECT_EQ(gather.samples, 3);
}

// Steps are sums: what is slow now and then is in them, too.
TEST(MeasurementTest, AKindTakesTheMeanOfItsInstructions) {
  Timeline slow = HandRun(1, 1000);
  slow.instructions[1].cpu_ns = 17000;
  const std::vector<MeasuredTime> times =
      MeasureTimes(HandOutline(), HandProgram(), HandWorkload(), {HandRun(0, 1000), slow});
  EXPECT_NEAR(Find(times, "forward layers.*.a").seconds, 7.5e-6, 1e-15) << "of 3, 5, 17 and 5 us";
}

TEST(MeasurementTest, ComputeThatSharedItsProcessorCountsItsProcessorTime) {
  Timeline run = HandRun(0, 1000);
  const auto seconds = [&](const char* kind) {
    return Find(MeasureTimes(HandOutline(), HandProgram(), HandWorkload(), {run}), kind).seconds;
  };
  EXPECT_NEAR(seconds("forward layers.*.a"), 4e-6, 1e-15) << "the mean of 3 and 5 us";
  EXPECT_NEAR(seconds("forward layers.*.b"), 1e-6, 1e-15);
  run.alone = true;
  EXPECT_NEAR(seconds("forward layers.*.a"), 5e-6, 1e-15) << "of 4 and 6";
  run.alone = false;
  for (InstructionTime& time : run.instructions) {
    time.cpu_ns = -1;
  }
  EXPECT_NEAR(seconds("forward layers.*.b"), 2e-6, 1e-15);
}

TEST(MeasurementTest, GapsAndWakesOfARunAreThoseOfItsDevice) {
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

TEST(MeasurementTest, SkewIsWhatAnAverageRankWaitsForTheLast) {
  const Program program = HandProgram();
  const Timeline last = Simulate(HandOutline(), program, HandWorkload(), HandProfile()).timeline;
  Timeline early = last;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (program.instructions[i].communicator != Communicator::kNone) {
      early.instructions[i].start_ns -= 600;
    }
  }
  EXPECT_NEAR(MeasureSkew(program, {last, early}), 300e-9, 1e-12);
  EXPECT_EQ(MeasureSkew(program, {last}), 0);
  EXPECT_EQ(MeasureSkew(program, {}), 0);
}

// Measuring a run on one device predicts other programs there, whatever the rates say.
TEST(MeasurementTest, ARunPredictsProgramsWithOtherMicrobatchesAndPrefetch) {
  Outline outline = TestOutline(4, /*tied=*/false);
  for (Node& node : outline.nodes) {
    node.forward.flops = 3e5;
    node.backward.flops = 7e5;
  }
  DeviceProfile truth = HandProfile();
  truth.overhead_seconds = 1.3e-6;
  const Program measured = BuildTrainProgram(outline, TestOptions(outline, 1), 2);
  const Simulation run = Simulate(outline, measured, HandWorkload(), truth);

  DeviceProfile profile = HandProfile();
  profile.compute["fp32"].flops_per_second = 5e7;  // far from the truth, and not used
  profile.link.bytes_per_second = 3e7;
  profile.measured = MeasureTimes(outline, measured, HandWorkload(), {run.timeline});
  for (const int prefetch : {0, 1, 2}) {
    for (const int microbatches : {2, 3, 7}) {
      const Program program = BuildTrainProgram(outline, TestOptions(outline, prefetch), microbatches);
      const Simulation predicted = Simulate(outline, program, HandWorkload(), profile);
      EXPECT_EQ(predicted.estimated + predicted.scaled, 0);
      const double expected =
          static_cast<double>(StepNanoseconds(Simulate(outline, program, HandWorkload(), truth).timeline));
      EXPECT_NEAR(static_cast<double>(StepNanoseconds(predicted.timeline)) / expected, 1, 1e-3);
    }
  }
}

}  // namespace
}  // namespace tandem::schedules_v1
