#include "schedules_v1/trace.h"

#include <gtest/gtest.h>

#include <map>

#include "nlohmann/json.hpp"
#include "schedules_v1/simulator.h"
#include "tests/schedules/hand_program.h"
#include "tests/schedules/test_outline.h"

namespace tandem::schedules_v1 {
namespace {

using nlohmann::json;

TEST(TraceTest, EventsOfATrackFollowEachOtherAndSayWhatBoundThem) {
  const Outline outline = HandOutline();
  const Program program = HandProgram();
  const Simulation simulation = Simulate(outline, program, HandWorkload(), HandProfile());
  const json trace = json::parse(
      TraceToJson(outline, {{.program = &program, .timeline = &simulation.timeline, .offset_ns = 500}}));
  std::vector<std::string> names;
  std::vector<std::string> tracks;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      names.push_back(event["name"]);
    } else if (event["name"] == "thread_name") {
      tracks.push_back(event["args"]["name"]);
    }
  }
  EXPECT_EQ(tracks, (std::vector<std::string>{"gather", "compute"}));
  ASSERT_EQ(names.size(), 6u);
  EXPECT_EQ(names[1], "forward layers.0.a mb 0");
  const json& last = trace["traceEvents"].back();
  EXPECT_EQ(last["ts"], 8.5);
  EXPECT_EQ(last["dur"], 4.0);
  EXPECT_EQ(last["args"]["bound_by"], "4 unshard layers.0 mb 0");
  EXPECT_EQ(last["args"]["instruction"], 5);
}

TEST(TraceTest, NothingOverlapsOnATrackAndMemoryIsTheReplays) {
  const Outline outline = TestOutline(3, /*tied=*/false);
  const Program program = BuildTrainProgram(outline, TestOptions(outline, 1), 2);
  DeviceProfile profile = HandProfile();
  profile.overhead_seconds = 1.7e-7;
  Timeline first = Simulate(outline, program, HandWorkload(), profile).timeline;
  Timeline second = first;
  second.rank = 1;
  const MemoryCurve memory = ReplayMemory(outline, program, {1000, 300});
  const json trace = json::parse(
      TraceToJson(outline, {{.program = &program, .timeline = &first, .memory = &memory},
                            {.program = &program, .timeline = &first, .offset_ns = StepNanoseconds(first)},
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
      EXPECT_EQ(event["args"]["persistent"], 1024 + 512);
      highest = std::max<int64_t>(highest, event["args"]["activations"].get<int64_t>() +
                                               event["args"]["activation gradients"].get<int64_t>() +
                                               event["args"]["scratch"].get<int64_t>());
    }
  }
  EXPECT_EQ(highest, memory.peak.total());
  EXPECT_EQ(tracks.size(), 6u) << "three streams on two ranks";
  for (auto& [track, events] : tracks) {
    std::sort(events.begin(), events.end());
    for (size_t i = 1; i < events.size(); ++i) {
      EXPECT_GE(events[i].first, events[i - 1].second - 1e-6);
    }
  }
}

}  // namespace
}  // namespace tandem::schedules_v1
