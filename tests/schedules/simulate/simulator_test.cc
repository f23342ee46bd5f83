// SPDX-License-Identifier: Apache-2.0
#include "schedules/simulate/simulator.h"

#include <gtest/gtest.h>

#include "tests/schedules/simulate/hand_program.h"

namespace tandem::schedules {
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
  EXPECT_EQ(simulation.undisturbed_ns, (std::vector<int64_t>{10000, 3000, 0, 0}));
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
                       .work = {.link_bytes = 2000, .ranks = 2},
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

TEST(SimulatorTest, StreamsTakeTimeToWakeAndBetweenInstructions) {
  DeviceProfile profile = HandProfile();
  profile.gap_seconds = 100e-9;
  profile.wake_seconds = 300e-9;
  // 0 wakes after the former run at 300; 1 wakes after it at 1600; 2 follows 0 at 1400; 3 follows 1, whose
  // end is later than 2's; 4 wakes after 3, 5 after 4.
  const Simulation simulation = SimulateHand(profile);
  EXPECT_EQ(Ends(simulation), (std::vector<int64_t>{1300, 5600, 2400, 7700, 9000, 13300}));
  EXPECT_EQ(simulation.timeline.instructions[3].start_ns, 5700);
}

TEST(SimulatorTest, CollectivesWaitForTheLastRank) {
  DeviceProfile profile = HandProfile();
  profile.skew_seconds = 500e-9;
  EXPECT_EQ(Ends(SimulateHand(profile)), (std::vector<int64_t>{1500, 5500, 3000, 7500, 9000, 13000}));
  const Simulation one = Simulate(HandOutline(), HandProgram(), HandWorkload(1), profile);
  EXPECT_EQ(one.timeline.instructions[0].end_ns, 3000)
      << "one rank reads 1000 bytes, writes 2000, waits for no other";
}

TEST(SimulatorTest, WaitingForTheLastRankTakesNoProcessor) {
  DeviceProfile profile = HandProfile();
  profile.cores = 1;
  profile.skew_seconds = 2e-6;
  profile.measured = {{.kind = "unshard layers.*",
                       .seconds = 2e-6,
                       .cpu_seconds = 2e-6,
                       .work = {.link_bytes = 2000, .ranks = 2},
                       .samples = 1}};
  // A gather works for half of its 4000. From 4000: compute wants 1 processor, the gather half of one, so its
  // working half takes 1.5 times as long: 5000 in all, in which compute does 5000 / 1.5.
  const std::vector<int64_t> ends = Ends(SimulateHand(profile));
  EXPECT_EQ(ends[0], 4000);
  EXPECT_EQ(ends[2], 9000);
  EXPECT_EQ(ends[1], 9000 + 4000 - 3333);
}

TEST(SimulatorTest, DeviceCopiesRunDuringTheFormerRun) {
  Program program = HandProgram();
  program.buffers.push_back({.name = "tokens",
                             .kind = BufferKind::kBatch,
                             .subject = 1,
                             .life = Life::kRing,
                             .bytes = {3000, 3000}});
  program.instructions.insert(program.instructions.begin(),
                              {.opcode = Opcode::kLoadBatch,
                               .target = 1,
                               .stream = kToDevice,
                               .operands = {{.buffer = 6, .mode = Mode::kWrites}}});
  for (size_t i = 1; i < program.instructions.size(); ++i) {
    for (Wait& wait : program.instructions[i].waits) {
      ++wait.instruction;
    }
  }
  program.instructions[2].waits.push_back({0});  // the first forward reads the tokens
  const Simulation simulation = Simulate(HandOutline(), program, HandWorkload(), HandProfile());
  // Before the former run, whose first forward waited for its own tokens until 3000, and which took 14000 so.
  EXPECT_EQ(simulation.timeline.instructions[0].start_ns, 3000 - 14000);
  EXPECT_EQ(simulation.timeline.instructions[0].end_ns, 6000 - 14000);
  EXPECT_EQ(simulation.timeline.instructions[2].start_ns, 1000) << "nothing of the copy is exposed";
  EXPECT_EQ(StepNanoseconds(program, simulation.timeline), 12000);
}

TEST(SimulatorTest, LateHostCopyIsOutsideTheStep) {
  Program program = HandProgram();
  program.streams.push_back({"device-to-host", true});
  program.instructions.push_back(
      {.opcode = Opcode::kReport, .stream = 4, .operands = {{.buffer = 5}}, .waits = {{5}}});
  const Simulation simulation = Simulate(HandOutline(), program, HandWorkload(), HandProfile());
  EXPECT_EQ(simulation.timeline.instructions[6].start_ns, 12000);
  EXPECT_EQ(simulation.timeline.instructions[6].end_ns, 12600);
  EXPECT_EQ(StepNanoseconds(program, simulation.timeline), 12000);
}

TEST(SimulatorTest, InstructionsAfterAHostWaitStartAfterIt) {
  Program program = HandProgram();
  // The host reads sizes that the first forward left; the gather of layers.1 is issued after that.
  program.instructions.insert(program.instructions.begin() + 2,
                              {.opcode = Opcode::kHostWait, .target = 0, .stream = kCompute});
  for (size_t i = 3; i < program.instructions.size(); ++i) {
    for (Wait& wait : program.instructions[i].waits) {
      wait.instruction += wait.instruction >= 2;
    }
  }
  const Timeline timeline = Simulate(HandOutline(), program, HandWorkload(), HandProfile()).timeline;
  EXPECT_EQ(timeline.instructions[2].end_ns, 5000);
  EXPECT_EQ(timeline.instructions[3].start_ns, 5000) << "not at 1000";
  EXPECT_EQ(timeline.instructions[4].end_ns, 8000);
  EXPECT_EQ(BoundBy(program, timeline)[3], 2);

  DeviceProfile wakes = HandProfile();
  wakes.wake_seconds = 300e-9;
  const Timeline later = Simulate(HandOutline(), program, HandWorkload(), wakes).timeline;
  EXPECT_EQ(later.instructions[3].start_ns, later.instructions[2].end_ns + 300);
}

// On a GPU: what one stream of weight halves computes, another's passes lose.
TEST(SimulatorTest, StreamsThatComputeShareTheEngine) {
  Program program = HandProgram();
  program.streams.push_back({"weights"});
  // Beside forward a, from 1000: 3 us of the same work.
  program.instructions.insert(program.instructions.begin() + 2, program.instructions[3]);
  program.instructions[2].stream = static_cast<StreamId>(program.streams.size()) - 1;
  program.instructions[2].waits = {{0}};
  for (size_t i = 3; i < program.instructions.size(); ++i) {
    for (Wait& wait : program.instructions[i].waits) {
      wait.instruction += wait.instruction >= 2;
    }
  }
  const Simulation simulation = Simulate(HandOutline(), program, HandWorkload(), HandProfile());
  // Both at half speed until the 2 us of forward b are done at 5000; forward a then has 2 us left.
  EXPECT_EQ(simulation.timeline.instructions[2].end_ns, 5000);
  EXPECT_EQ(simulation.timeline.instructions[1].end_ns, 7000);
  EXPECT_EQ(ExposedCommunication(program, simulation.timeline), 1000 + 1000)
      << "the first gather, and that of the second use: weights are no communication";
}

TEST(SimulatorTest, AnEmptyProgramTakesNoTime) {
  EXPECT_TRUE(Simulate(HandOutline(), {.name = "validate"}, HandWorkload(), HandProfile())
                  .timeline.instructions.empty());
}

}  // namespace
}  // namespace tandem::schedules
