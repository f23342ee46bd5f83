// SPDX-License-Identifier: Apache-2.0
#include "schedules/simulate/timeline.h"

#include <gtest/gtest.h>

#include "schedules/simulate/simulator.h"
#include "tests/schedules/simulate/hand_program.h"

namespace tandem::schedules {
namespace {

Timeline HandTimeline() {
  return {.program = "train",
          .instructions = {{0, 1000}, {1000, 5000}, {1000, 2000}, {5000, 7000}, {7000, 8000}, {8000, 12000}}};
}

TEST(TimelineTest, GivesBusyTimesAndWhatBoundEachStart) {
  const Program program = HandProgram();
  const Timeline timeline = HandTimeline();
  EXPECT_EQ(StepNanoseconds(program, timeline), 12000);
  EXPECT_EQ(BusyNanoseconds(program, timeline), (std::vector<int64_t>{10000, 3000, 0, 0}));
  EXPECT_EQ(BoundBy(program, timeline), (std::vector<int>{-1, 0, 0, 1, 3, 4}));
  EXPECT_EQ(CriticalPath(program, timeline), (std::vector<int>{0, 1, 3, 4, 5}));
  EXPECT_EQ(ExposedCommunication(program, timeline), 2000);
}

TEST(TimelineTest, AStallNamesWhoWaitedAndForWhat) {
  const std::vector<Stall> stalls = ComputeStalls(HandProgram(), HandTimeline());
  ASSERT_EQ(stalls.size(), 2u);
  EXPECT_EQ(stalls[0].instruction, 1);
  EXPECT_EQ(stalls[0].cause, 0);
  EXPECT_EQ(stalls[0].exposed_ns, 1000);
  EXPECT_EQ(stalls[1].instruction, 5);
  EXPECT_EQ(stalls[1].cause, 4);
  EXPECT_EQ(stalls[1].start_ns, 7000);
  EXPECT_EQ(stalls[1].end_ns, 8000);
}

TEST(TimelineTest, ExposedTimeCountsOnceWhileAStreamCommunicates) {
  Program program = HandProgram();
  program.instructions[2].stream = kReduce;
  Timeline timeline = HandTimeline();
  // Both communication streams work in 12000 .. 13000; no stream works in 14000 .. 15000.
  timeline.instructions[4] = {12000, 14000};
  timeline.instructions[2] = {12000, 13000};
  timeline.instructions[3] = {5000, 7000};
  timeline.instructions[5] = {15000, 16000};
  program.instructions[3].waits = {};
  const std::vector<Stall> stalls = ComputeStalls(program, timeline);
  ASSERT_EQ(stalls.size(), 2u);
  EXPECT_EQ(stalls[1].start_ns, 7000);
  EXPECT_EQ(stalls[1].end_ns, 15000);
  EXPECT_EQ(stalls[1].exposed_ns, 2000);
  EXPECT_EQ(ExposedCommunication(program, timeline), 3000);
  EXPECT_EQ(ExposedTimes(program, timeline), (std::vector<Interval>{{0, 1000}, {12000, 14000}}));
  const std::vector<int64_t> by_stream = ExposedByStream(program, timeline);
  EXPECT_EQ(by_stream[kCompute], 0);
  EXPECT_EQ(by_stream[kGather], 3000);
  EXPECT_EQ(by_stream[kReduce], 1000) << "beside the gather";
}

TEST(TimelineTest, ACopyOfTheHostIsNoCommunication) {
  Program program = HandProgram();
  program.instructions[4].stream = kToDevice;
  EXPECT_EQ(ExposedCommunication(program, HandTimeline()), 1000) << "of the first gather alone";
}

TEST(TimelineTest, CopyThatEndedBeforeBindsNothing) {
  Program program = HandProgram();
  program.instructions[0].stream = kToDevice;
  Timeline timeline = HandTimeline();
  timeline.instructions[0] = {-9000, -8000};
  timeline.instructions[1] = {0, 5000};
  EXPECT_EQ(BoundBy(program, timeline)[1], -1) << "and not a gap of 8 us";
  timeline.instructions[0] = {-500, 300};
  timeline.instructions[1] = {300, 5000};
  EXPECT_EQ(BoundBy(program, timeline)[1], 0);
}

TEST(TimelineTest, TimeAfterTheLastComputeIsAStall) {
  Program program = HandProgram();
  program.instructions.pop_back();
  Timeline timeline = HandTimeline();
  timeline.instructions.pop_back();
  const std::vector<Stall> stalls = ComputeStalls(program, timeline);
  ASSERT_EQ(stalls.size(), 2u);
  EXPECT_EQ(stalls[1].instruction, -1);
  EXPECT_EQ(stalls[1].cause, 4);
  EXPECT_EQ(stalls[1].exposed_ns, 1000);
}

TEST(TimelineTest, StallsChargeWhatTheCauseQueuedBehind) {
  Program program = HandProgram();
  program.instructions[4].opcode = Opcode::kGradientNorm;
  Timeline timeline = HandTimeline();
  // The gather of layers.1 keeps the stream until 7600; what compute waits for runs from there.
  timeline.instructions[2] = {6500, 7600};
  timeline.instructions[4] = {7600, 8000};
  program.instructions[3].waits = {};
  const StreamId stream = program.instructions[4].stream;
  const std::map<StallCause, int64_t> expected = {{{stream, Opcode::kUnshard}, 1000 + 600},
                                                  {{stream, Opcode::kGradientNorm}, 400}};
  EXPECT_EQ(StallsByCause(program, timeline), expected);
}

TEST(TimelineTest, AHostWaitThatWaitedIsLookedThrough) {
  Program program = HandProgram();
  // The host wait, on compute, waits for the gather; the forward behind it waits for nothing itself.
  program.instructions.insert(
      program.instructions.begin() + 5,
      {.opcode = Opcode::kHostWait, .target = 0, .microbatch = 0, .stream = kCompute, .waits = {{4}}});
  program.instructions.back().waits = {};
  Timeline timeline = HandTimeline();
  timeline.instructions.insert(timeline.instructions.begin() + 5, {8000, 8000});
  const std::vector<Stall> stalls = ComputeStalls(program, timeline);
  ASSERT_EQ(stalls.size(), 2u);
  EXPECT_EQ(stalls[1].instruction, 6);
  EXPECT_EQ(stalls[1].cause, 4);
  EXPECT_EQ(CriticalPath(program, timeline), (std::vector<int>{0, 1, 3, 4, 6}));
  EXPECT_EQ(HostWaitsOf(program, timeline), (HostWaits{.count = 1, .waited_ns = 1000}));
  timeline.instructions[3].end_ns = 7600;
  EXPECT_EQ(HostWaitsOf(program, timeline), (HostWaits{.count = 1, .waited_ns = 1000, .covered_ns = 600}));
}

TEST(TimelineTest, CommunicationBesideWeightsIsNotExposed) {
  Program program = HandProgram();
  Timeline timeline = HandTimeline();
  program.streams.push_back({"weights"});
  Instruction weights = program.instructions[5];
  weights.stream = static_cast<StreamId>(program.streams.size()) - 1;
  weights.waits = {};
  program.instructions.push_back(weights);
  timeline.instructions.push_back({200, 1600});
  EXPECT_EQ(ExposedTimes(program, timeline), (std::vector<Interval>{{0, 200}, {7000, 8000}}));
  EXPECT_EQ(ComputeStalls(program, timeline)[0].exposed_ns, 200);
  EXPECT_EQ(ComputingTime(program, timeline), 10000 + 800);
}

TEST(TimelineTest, AnEmptyProgramTakesNoTime) {
  EXPECT_EQ(StepNanoseconds({}, {}), 0);
  EXPECT_TRUE(ComputeStalls({}, {}).empty());
  EXPECT_TRUE(CriticalPath({}, {}).empty());
}

}  // namespace
}  // namespace tandem::schedules
