// SPDX-License-Identifier: Apache-2.0
// The simulator on programs that the passes build, where no time is known by hand but relations are.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "schedules/build/program_builder.h"
#include "schedules/passes/live_locals.h"
#include "schedules/simulate/measurement.h"
#include "schedules/simulate/memory_curve.h"
#include "schedules/simulate/simulator.h"
#include "tests/schedules/simulate/hand_program.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::schedules {
namespace {

StagePrograms Build(const Outline& outline, int microbatches, int prefetch) {
  BuildOptions options = OptionsFor(outline, "zero3", microbatches);
  options.prefetch = prefetch;
  return BuildStage(outline, options).value();
}

// Every group of the programs, of two ranks.
Workload TwoRanks(const StagePrograms& stage) {
  Workload workload;
  for (const Program* program : stage.All()) {
    for (const CommunicatorUse& use : program->communicators) {
      workload.groups[use.group] = {.ranks = 2};
    }
  }
  return workload;
}

// Outlines of tests have no FLOPs.
Outline Busy(Outline outline, double flops) {
  for (Node& node : outline.nodes) {
    node.compute = "fp32";
    node.forward.flops = flops;
    for (Access* access : {&node.backward_input, &node.backward_weight}) {
      access->flops = 2 * flops;
    }
  }
  return outline;
}

DeviceProfile Uneven() {
  DeviceProfile profile = HandProfile();
  profile.overhead_seconds = 3e-7;
  profile.wake_seconds = 1e-7;
  profile.compute_slowdown = 0.25;
  return profile;
}

TEST(BuiltProgramsTest, InstructionsStartWhenTheirWaitsEnd) {
  for (const Outline& outline : {Busy(SmallDecoder(3, /*tied=*/true), 1e5), Busy(MoeDecoder(2), 1e5)}) {
    for (const double cores : {0.0, 1.0, 1.5}) {
      for (const int prefetch : {0, 1, 2}) {
        DeviceProfile profile = HandProfile();
        profile.cores = cores;
        const StagePrograms stage = Build(outline, 3, prefetch);
        const Program& program = stage.train;
        const Timeline timeline = Simulate(outline, program, TwoRanks(stage), profile).timeline;
        const std::vector<int> bound_by = BoundBy(program, timeline);
        std::vector<int64_t> free(program.streams.size(), std::numeric_limits<int64_t>::min());
        for (size_t i = 0; i < program.instructions.size(); ++i) {
          const InstructionTime& time = timeline.instructions[i];
          int64_t& stream = free[program.instructions[i].stream];
          EXPECT_GE(time.start_ns, stream) << i;
          EXPECT_GE(time.end_ns, time.start_ns) << i;
          stream = time.end_ns;
          for (const Wait& wait : program.instructions[i].waits) {
            EXPECT_GE(time.start_ns, timeline.instructions[wait.instruction].end_ns) << i;
          }
          if (!program.streams[program.instructions[i].stream].copies_host) {
            const int64_t bound = bound_by[i] < 0 ? 0 : timeline.instructions[bound_by[i]].end_ns;
            EXPECT_EQ(time.start_ns, std::max<int64_t>(0, bound)) << i;
          }
        }
      }
    }
  }
}

TEST(BuiltProgramsTest, PrefetchHidesGathersWhereComputeLastsLonger) {
  const Outline outline = Busy(SmallDecoder(4), 1e6);
  const auto exposed = [&](int prefetch) {
    const StagePrograms stage = Build(outline, 2, prefetch);
    return ExposedCommunication(stage.train,
                                Simulate(outline, stage.train, TwoRanks(stage), HandProfile()).timeline);
  };
  EXPECT_LT(exposed(1), exposed(0) / 2);
}

TEST(BuiltProgramsTest, ExposedTimesAreThoseOfTheStalls) {
  const Outline outline = Busy(SmallDecoder(3, /*tied=*/true), 1e4);
  for (const int prefetch : {0, 1, 2}) {
    for (const double cores : {0.0, 1.0}) {
      DeviceProfile profile = Uneven();
      profile.cores = cores;
      const StagePrograms stage = Build(outline, 2, prefetch);
      const Timeline timeline = Simulate(outline, stage.train, TwoRanks(stage), profile).timeline;
      int64_t of_stalls = 0;
      for (const Stall& stall : ComputeStalls(stage.train, timeline)) {
        of_stalls += stall.exposed_ns;
      }
      EXPECT_GT(of_stalls, 0);
      EXPECT_EQ(ExposedCommunication(stage.train, timeline), of_stalls);
    }
  }
}

// Every moment of a step without gaps is of one instruction of the path; gaps are what is missing to the
// step.
TEST(BuiltProgramsTest, TheCriticalPathSumsToTheStep) {
  const Outline outline = Busy(SmallDecoder(3, /*tied=*/true), 1e4);
  for (const int prefetch : {0, 1, 2}) {
    for (const double wake : {0.0, 2e-7}) {
      DeviceProfile profile = Uneven();
      profile.wake_seconds = wake;
      const StagePrograms stage = Build(outline, 2, prefetch);
      const Timeline timeline = Simulate(outline, stage.train, TwoRanks(stage), profile).timeline;
      int64_t gaps = 0;
      int64_t at = 0;
      for (const int i : CriticalPath(stage.train, timeline)) {
        const InstructionTime& time = timeline.instructions[i];
        EXPECT_GE(time.start_ns, at) << i;
        gaps += time.start_ns - at;
        at = time.end_ns;
      }
      EXPECT_EQ(at, StepNanoseconds(stage.train, timeline));
      EXPECT_EQ(gaps > 0, wake > 0);
    }
  }
}

// Of what an instruction does not know to have ended, all that runs at any moment is a part.
TEST(BuiltProgramsTest, MemoryInUseNeverExceedsLiveBytes) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Outline outline = Busy(RandomOutline(seed), 1e3 * static_cast<double>(seed % 7 + 1));
    const StagePrograms stage = BuildStage(outline, RandomOptions(outline, seed)).value();
    DeviceProfile profile = Uneven();
    profile.link.bytes_per_second = 1e7 * static_cast<double>(1 + seed % 5 * 20);
    const Timeline timeline = Simulate(outline, stage.train, TwoRanks(stage), profile).timeline;
    const MemoryCurve curve = MemoryOverTime(stage.train, timeline);
    EXPECT_GT(curve.peak_bytes, 0) << seed;
    EXPECT_LE(curve.peak_bytes, MostBytesAlive(stage.train)) << seed;
    EXPECT_LE(stage.persistent_bytes + curve.peak_bytes, stage.arena_bytes) << seed;
  }
}

// Measuring a run on one device predicts other programs there, whatever the rates say.
TEST(BuiltProgramsTest, RunPredictsOtherMicrobatchesAndPrefetch) {
  const Outline outline = Busy(SmallDecoder(4), 3e5);
  DeviceProfile truth = HandProfile();
  truth.overhead_seconds = 1.3e-6;
  const StagePrograms measured = Build(outline, 2, 1);
  const Workload workload = TwoRanks(measured);
  const Simulation run = Simulate(outline, measured.train, workload, truth);

  DeviceProfile profile = HandProfile();
  profile.compute["fp32"].flops_per_second = 5e7;  // far from the truth, and used for little
  profile.link.bytes_per_second = 3e7;
  profile.measured = MeasureTimes(outline, measured.train, workload, {run.timeline});
  for (const int prefetch : {0, 1, 2}) {
    for (const int microbatches : {2, 3, 7}) {
      const StagePrograms stage = Build(outline, microbatches, prefetch);
      const Simulation predicted = Simulate(outline, stage.train, workload, profile);
      // What grows with the number of microbatches is scaled: a reduction between the first and the last, the
      // report.
      EXPECT_EQ(predicted.estimated, 0);
      EXPECT_EQ(predicted.scaled == 0, microbatches == 2);
      const double expected = static_cast<double>(
          StepNanoseconds(stage.train, Simulate(outline, stage.train, workload, truth).timeline));
      EXPECT_NEAR(static_cast<double>(StepNanoseconds(stage.train, predicted.timeline)) / expected, 1, 1e-3);
    }
  }
}

}  // namespace
}  // namespace tandem::schedules
