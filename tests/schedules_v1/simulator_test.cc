#include "schedules_v1/simulator.h"

#include <gtest/gtest.h>

#include <set>

#include "schedules_v1/checker.h"
#include "tests/schedules/hand_program.h"
#include "tests/schedules/test_outline.h"

namespace tandem::schedules_v1 {
namespace {

std::vector<int64_t> Ends(const Simulation& simulation) {
  std::vector<int64_t> ends;
  for (const InstructionTime& time : simulation.timeline.instructions) {
    ends.push_back(time.end_ns);
  }
  return ends;
}

Simulation SimulateHand(const DeviceProfile& profile) {
  return Simulate(HandOutline(), HandProgram(), HandWorkload(), profile);
}

TEST(SimulatorTest, StreamsRunInOrderAndWait) {
  const Simulation simulation = SimulateHand(HandProfile());
  EXPECT_EQ(Ends(simulation), (std::vector<int64_t>{1000, 5000, 2000, 7000, 8000, 12000}));
  EXPECT_EQ(simulation.timeline.instructions[3].start_ns, 5000);
  EXPECT_EQ(simulation.estimated, 6);
  EXPECT_EQ(simulation.alone_ns[static_cast<int>(StreamKind::kCompute)], 10000);
}

TEST(SimulatorTest, StreamsThatShareAProcessorSlowEachOther) {
  DeviceProfile profile = HandProfile();
  profile.cores = 1;
  // From 1000 both run at half speed: the gather takes 2000, and forward a has 3000 left.
  EXPECT_EQ(Ends(SimulateHand(profile)), (std::vector<int64_t>{1000, 6000, 3000, 8000, 9000, 13000}));
  profile.cores = 2;
  EXPECT_EQ(Ends(SimulateHand(profile)), Ends(SimulateHand(HandProfile())));
}

TEST(SimulatorTest, WhatMostlyWaitsTakesLittleOfTheProcessor) {
  DeviceProfile profile = HandProfile();
  profile.cores = 1;
  profile.measured = {{.kind = "unshard layers.*",
                       .seconds = 2e-6,
                       .cpu_seconds = 1e-6,
                       .link_bytes = 2000,
                       .ranks = 2,
                       .samples = 1}};
  // From 2000: compute wants 1 processor, the gather half of one, so there is 1.5 times too little. The
  // gather's working half takes 1.5 times as long: 2500 in all, in which compute does 2500 / 1.5.
  const Simulation simulation = SimulateHand(profile);
  EXPECT_EQ(simulation.measured, 3);
  EXPECT_EQ(Ends(simulation)[0], 2000);
  EXPECT_EQ(Ends(simulation)[2], 4500);
  EXPECT_EQ(Ends(simulation)[1], 4500 + 4000 - 1667);
}

TEST(SimulatorTest, CommunicationSlowsComputeWhereTheProfileSaysSo) {
  DeviceProfile profile = HandProfile();
  profile.compute_slowdown = 0.5;
  EXPECT_EQ(Ends(SimulateHand(profile)), (std::vector<int64_t>{1000, 5500, 2000, 7500, 8500, 12500}));
}

TEST(SimulatorTest, AStreamTakesTimeToWakeAndBetweenInstructions) {
  DeviceProfile profile = HandProfile();
  profile.gap_seconds = 100e-9;
  profile.wake_seconds = 300e-9;
  // 1 wakes at 1300; 2 follows 0 at 1100; 3 follows 1, whose end is later than 2's; 4 wakes after 3, 5
  // after 4.
  const Simulation simulation = SimulateHand(profile);
  EXPECT_EQ(Ends(simulation), (std::vector<int64_t>{1000, 5300, 2100, 7400, 8700, 13000}));
  EXPECT_EQ(simulation.timeline.instructions[3].start_ns, 5400);
}

TEST(SimulatorTest, CollectivesOfSeveralRanksWaitForTheLastOne) {
  DeviceProfile profile = HandProfile();
  const std::vector<int64_t> before = Ends(SimulateHand(profile));
  profile.skew_seconds = 500e-9;
  const Simulation simulation = SimulateHand(profile);
  const InstructionTime& gather = simulation.timeline.instructions[1];
  EXPECT_EQ(gather.end_ns, before[1] + 500);
}

TEST(SimulatorTest, EveryInstructionRunsAfterWhatItWaitsFor) {
  const Outline outline = TestOutline(3, /*tied=*/true);
  DeviceProfile profile = HandProfile();
  for (const double cores : {0.0, 1.0, 1.5}) {
    for (const int prefetch : {0, 1, 2}) {
      profile.cores = cores;
      const Program program = BuildTrainProgram(outline, TestOptions(outline, prefetch), 3);
      ASSERT_TRUE(CheckProgram(outline, program).ok());
      const Timeline timeline = Simulate(outline, program, HandWorkload(), profile).timeline;
      std::array<int64_t, kNumStreams> free{};
      for (size_t i = 0; i < program.instructions.size(); ++i) {
        const InstructionTime& time = timeline.instructions[i];
        int64_t& stream = free[static_cast<int>(program.instructions[i].stream)];
        EXPECT_GE(time.start_ns, stream) << i;
        EXPECT_GE(time.end_ns, time.start_ns) << i;
        stream = time.end_ns;
        for (const int wait : program.instructions[i].waits) {
          EXPECT_GE(time.start_ns, timeline.instructions[wait].end_ns) << i;
        }
        // Nothing starts later than it could.
        const int bound = BoundBy(program, timeline)[i];
        EXPECT_EQ(time.start_ns, bound < 0 ? 0 : timeline.instructions[bound].end_ns) << i;
      }
    }
  }
}

TEST(SimulatorTest, PrefetchHidesGathersWhereComputeLastsLonger) {
  Outline outline = TestOutline(4, /*tied=*/false);
  for (Node& node : outline.nodes) {
    node.forward.flops = 1e6;
    node.backward.flops = 2e6;
  }
  const auto exposed = [&](int prefetch) {
    const Program program = BuildTrainProgram(outline, TestOptions(outline, prefetch), 2);
    return ExposedCommunication(program, Simulate(outline, program, HandWorkload(), HandProfile()).timeline);
  };
  EXPECT_LT(exposed(1), exposed(0) / 2);
}

TEST(CostTest, KindsForgetNumbersAndMicrobatches) {
  const Outline outline = TestOutline(2, /*tied=*/false);
  const Program program = BuildTrainProgram(outline, TestOptions(outline, 1), 2);
  std::set<std::string> kinds;
  for (const Instruction& instruction : program.instructions) {
    kinds.insert(KindOf(outline, instruction));
  }
  for (const char* kind :
       {"forward layers.*.mlp", "backward layers.*.attention", "unshard layers.*", "reduce layers.*",
        "reduce layers.* add", "unshard head", "gradient-norm", "optimizer embedding"}) {
    EXPECT_EQ(kinds.count(kind), 1u) << kind << " of " << testing::PrintToString(kinds);
  }
}

TEST(CostTest, ACollectiveBeyondTheDomainPaysTheNetwork) {
  DeviceProfile profile = HandProfile();
  profile.link = {.max_ranks = 8, .bytes_per_second = 4e9, .latency_seconds = 1e-6, .hop_seconds = 1e-6};
  profile.network = {.bytes_per_second = 1e9, .latency_seconds = 2e-6, .hop_seconds = 10e-6};
  const Outline outline = HandOutline();
  Program program = HandProgram();
  program.parameter_slot_bytes = {16000};
  const auto micros = [&](int ranks) {
    const Workload workload{.compute = "fp32", .element_bytes = 4, .ranks = ranks};
    return CostModel(outline, program, workload, profile).Of(program.instructions[0]).seconds * 1e6;
  };
  EXPECT_NEAR(micros(8), 1 + 7 * 1 + 14000 / 4e3, 1e-9);
  // 2 machines of 8: 14 hops within, 1 between; 15/16 of the bytes at the slower rate.
  EXPECT_NEAR(micros(16), 2 + 14 * 1 + 1 * 10 + 15000 / 1e3, 1e-9);
  EXPECT_NEAR(micros(1), 2 * 16000 / 1e3, 1e-9) << "one rank copies";
}

TEST(CostTest, AnEntryOfAnotherSizeIsScaledByTheEstimates) {
  DeviceProfile profile = HandProfile();
  profile.measured = {{.kind = "forward layers.*.a", .seconds = 10e-6, .flops = 2000, .samples = 3}};
  const Outline outline = HandOutline();
  const Program program = HandProgram();
  const Workload workload = HandWorkload();
  const CostModel costs(outline, program, workload, profile);
  const Cost scaled = costs.Of(program.instructions[1]);
  EXPECT_EQ(scaled.source, CostSource::kScaled);
  EXPECT_NEAR(scaled.seconds, 20e-6, 1e-12);
  EXPECT_EQ(costs.Of(program.instructions[3]).source, CostSource::kEstimated);
  profile.measured.push_back({.kind = "forward layers.*.a", .seconds = 7e-6, .flops = 4000, .samples = 3});
  const Cost measured = costs.Of(program.instructions[1]);
  EXPECT_EQ(measured.source, CostSource::kMeasured);
  EXPECT_EQ(measured.seconds, 7e-6);
}

TEST(CostTest, ATimeOfOneRankSaysNothingOfACollective) {
  DeviceProfile profile = HandProfile();
  profile.measured = {{.kind = "unshard layers.*", .seconds = 1, .bytes = 4000, .samples = 1}};
  EXPECT_EQ(SimulateHand(profile).measured + SimulateHand(profile).scaled, 0);
}

}  // namespace
}  // namespace tandem::schedules_v1
