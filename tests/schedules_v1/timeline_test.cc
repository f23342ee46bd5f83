#include "schedules_v1/timeline.h"

#include <gtest/gtest.h>

#include "schedules_v1/simulator.h"
#include "tests/schedules/hand_program.h"
#include "tests/schedules/test_outline.h"

namespace tandem::schedules_v1 {
namespace {

Timeline HandTimeline() {
  return {.program = "train",
          .instructions = {{0, 1000}, {1000, 5000}, {1000, 2000}, {5000, 7000}, {7000, 8000}, {8000, 12000}}};
}

TEST(TimelineTest, SaysHowLongEachStreamWorkedAndWhatEachStartWasBoundBy) {
  const Program program = HandProgram();
  const Timeline timeline = HandTimeline();
  EXPECT_EQ(StepNanoseconds(timeline), 12000);
  const auto busy = BusyNanoseconds(program, timeline);
  EXPECT_EQ(busy[static_cast<int>(StreamKind::kCompute)], 10000);
  EXPECT_EQ(busy[static_cast<int>(StreamKind::kGather)], 3000);
  EXPECT_EQ(busy[static_cast<int>(StreamKind::kReduce)], 0);
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

TEST(TimelineTest, IdleTimeIsExposedOnlyWhileAStreamCommunicatesAndOnlyOnce) {
  Program program = HandProgram();
  program.instructions[2].stream = StreamKind::kReduce;
  Timeline timeline = HandTimeline();
  // Both communication streams work in 12000 .. 13000; nobody works in 14000 .. 15000.
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
}

TEST(TimelineTest, ExposedTimesAreThoseOfTheStalls) {
  const Outline outline = TestOutline(3, /*tied=*/true);
  for (const int prefetch : {0, 1, 2}) {
    for (const double cores : {0.0, 1.0}) {
      DeviceProfile profile = HandProfile();
      profile.cores = cores;
      profile.overhead_seconds = 3e-7;
      profile.wake_seconds = 1e-7;
      const Program program = BuildTrainProgram(outline, TestOptions(outline, prefetch), 2);
      const Timeline timeline = Simulate(outline, program, HandWorkload(), profile).timeline;
      int64_t of_stalls = 0;
      for (const Stall& stall : ComputeStalls(program, timeline)) {
        of_stalls += stall.exposed_ns;
      }
      EXPECT_GT(of_stalls, 0);
      EXPECT_EQ(ExposedCommunication(program, timeline), of_stalls);
    }
  }
}

// Every moment of a step without gaps is of one instruction of the path; gaps are what is missing to the
// step.
TEST(TimelineTest, TheCriticalPathSumsToTheStep) {
  const Outline outline = TestOutline(3, /*tied=*/true);
  for (const int prefetch : {0, 1, 2}) {
    for (const double wake : {0.0, 2e-7}) {
      DeviceProfile profile = HandProfile();
      profile.wake_seconds = wake;
      profile.overhead_seconds = 3e-7;
      profile.compute_slowdown = 0.25;
      const Program program = BuildTrainProgram(outline, TestOptions(outline, prefetch), 2);
      const Timeline timeline = Simulate(outline, program, HandWorkload(), profile).timeline;
      int64_t sum = 0;
      int64_t gaps = 0;
      int64_t at = 0;
      for (const int i : CriticalPath(program, timeline)) {
        const InstructionTime& time = timeline.instructions[i];
        EXPECT_GE(time.start_ns, at) << i;
        gaps += time.start_ns - at;
        sum += time.end_ns - time.start_ns;
        at = time.end_ns;
      }
      EXPECT_EQ(at, StepNanoseconds(timeline));
      EXPECT_EQ(sum + gaps, StepNanoseconds(timeline));
      EXPECT_EQ(gaps > 0, wake > 0);
    }
  }
}

TEST(TimelineTest, WhatFollowsTheLastComputeIsAStallOfTheStep) {
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

TEST(TimelineTest, WhatTheCauseQueuedBehindIsChargedForItsPartOfTheStall) {
  Program program = HandProgram();
  program.instructions[4].opcode = Opcode::kGradientNorm;
  Timeline timeline = HandTimeline();
  // The gather of layers.1 keeps the stream until 7600; what compute waits for runs from there.
  timeline.instructions[2] = {6500, 7600};
  timeline.instructions[4] = {7600, 8000};
  program.instructions[3].waits = {};
  const std::map<Opcode, int64_t> expected = {{Opcode::kUnshard, 1000 + 600}, {Opcode::kGradientNorm, 400}};
  EXPECT_EQ(StallsByOpcode(program, timeline), expected);
}

TEST(TimelineTest, AReleaseThatWaitedIsLookedThrough) {
  Program program = HandProgram();
  // The release, on compute, waits for the gather; the forward behind it waits for nothing itself.
  program.instructions.insert(program.instructions.begin() + 5,
                              {.opcode = Opcode::kRelease, .target = 0, .microbatch = 0, .waits = {4}});
  program.instructions.back().waits = {};
  Timeline timeline = HandTimeline();
  timeline.instructions.insert(timeline.instructions.begin() + 5, {8000, 8000});
  const std::vector<Stall> stalls = ComputeStalls(program, timeline);
  ASSERT_EQ(stalls.size(), 2u);
  EXPECT_EQ(stalls[1].instruction, 6);
  EXPECT_EQ(stalls[1].cause, 4);
  EXPECT_EQ(CriticalPath(program, timeline), (std::vector<int>{0, 1, 3, 4, 6}));
}

TEST(TimelineTest, IssueTimesNeverGoBack) {
  EXPECT_EQ(IssueTimes(HandTimeline()), (std::vector<int64_t>{0, 1000, 1000, 5000, 7000, 8000}));
  Timeline timeline = HandTimeline();
  timeline.instructions[4].start_ns = 500;
  EXPECT_EQ(IssueTimes(timeline)[4], 5000);
}

TEST(TimelineTest, AnEmptyProgramTakesNoTime) {
  EXPECT_EQ(StepNanoseconds({}), 0);
  EXPECT_TRUE(ComputeStalls({}, {}).empty());
  EXPECT_TRUE(CriticalPath({}, {}).empty());
}

}  // namespace
}  // namespace tandem::schedules_v1
