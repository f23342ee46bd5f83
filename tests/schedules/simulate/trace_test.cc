// SPDX-License-Identifier: Apache-2.0
#include "schedules/simulate/trace.h"

#include <gtest/gtest.h>

#include <map>

#include "nlohmann/json.hpp"
#include "schedules/simulate/simulator.h"
#include "tests/schedules/simulate/hand_program.h"

namespace tandem::schedules {
namespace {

using nlohmann::json;

TEST(TraceTest, EventsFollowEachOtherAndSayTheirBound) {
  const Outline outline = HandOutline();
  Program program = HandProgram();
  program.instructions[4].waits[0].frees = 2000;
  const Simulation simulation = Simulate(outline, program, HandWorkload(), HandProfile());
  const json trace = json::parse(
      TraceToJson(outline, {{.program = &program, .timeline = &simulation.timeline, .offset_ns = 500}}));
  std::vector<json> events;
  std::vector<std::string> tracks;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      events.push_back(event);
    } else if (event["name"] == "thread_name") {
      tracks.push_back(event["args"]["name"]);
    }
  }
  EXPECT_EQ(tracks, (std::vector<std::string>{"gather", "compute"}));
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[1]["name"], "forward layers.0.a mb 0");
  EXPECT_EQ(events[4]["args"]["waits_free_bytes"], 2000);
  const json& last = events.back();
  EXPECT_EQ(last["ts"], 8.5);
  EXPECT_EQ(last["dur"], 4.0);
  EXPECT_EQ(last["args"]["bound_by"], "4 unshard layers.0 mb 0");
  EXPECT_EQ(last["args"]["instruction"], 5);
  EXPECT_FALSE(last["args"].contains("waits_free_bytes"));
}

TEST(TraceTest, ItBeginsWithTheEarliestCopy) {
  Program program = HandProgram();
  program.instructions[0].stream = kToDevice;
  program.instructions[0].communicator = -1;
  Timeline timeline = Simulate(HandOutline(), program, HandWorkload(), HandProfile()).timeline;
  ASSERT_LT(timeline.instructions[0].start_ns, 0);
  for (const int64_t offset_ns : {0, 1000, -20'000}) {
    const json trace = json::parse(
        TraceToJson(HandOutline(), {{.program = &program, .timeline = &timeline},
                                    {.program = &program, .timeline = &timeline, .offset_ns = offset_ns}}));
    double least = 1;
    for (const json& event : trace["traceEvents"]) {
      if (event["ph"] == "X") {
        least = std::min(least, event["ts"].get<double>());
      }
    }
    EXPECT_EQ(least, 0) << "Perfetto has no time before a trace's start";
  }
}

TEST(TraceTest, EveryRankHasTracksAndMemory) {
  const Outline outline = HandOutline();
  const Program program = HandProgram();
  const Timeline first = Simulate(outline, program, HandWorkload(), HandProfile()).timeline;
  Timeline second = first;
  second.rank = 1;
  const MemoryCurve memory = MemoryOverTime(program, first);
  const json trace = json::parse(TraceToJson(
      outline, {{.program = &program, .timeline = &first, .memory = &memory},
                {.program = &program, .timeline = &first, .offset_ns = StepNanoseconds(program, first)},
                {.program = &program, .timeline = &second}}));
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> tracks;
  int64_t highest = 0;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      const double start = event["ts"];
      const double duration = event["dur"];
      EXPECT_GT(duration, 0);
      tracks[{event["pid"], event["tid"]}].emplace_back(start, start + duration);
    } else if (event["ph"] == "C") {
      EXPECT_EQ(event["args"][ToText(BufferKind::kWeights)], 2000);
      highest = std::max(highest, event["args"][ToText(BufferKind::kGathered)].get<int64_t>() +
                                      event["args"][ToText(BufferKind::kActivation)].get<int64_t>());
    }
  }
  EXPECT_EQ(highest, memory.peak_bytes);
  EXPECT_EQ(tracks.size(), 4u) << "two streams on two ranks";
  for (auto& [track, events] : tracks) {
    std::sort(events.begin(), events.end());
    for (size_t i = 1; i < events.size(); ++i) {
      EXPECT_GE(events[i].first, events[i - 1].second - 1e-6);
    }
  }
}

}  // namespace
}  // namespace tandem::schedules
