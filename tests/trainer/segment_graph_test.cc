// SPDX-License-Identifier: Apache-2.0
#include "trainer/segment_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/device/forwarding_device.h"

namespace tandem::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Writes down captures and launches, beside what the calls write.
class NotingDevice final : public device::ForwardingDevice {
 public:
  NotingDevice(device::Device& inner, std::vector<std::string>& notes)
      : ForwardingDevice(inner), notes_(notes) {}

  std::unique_ptr<device::Graph> Capture(std::function<void()> work) override {
    notes_.emplace_back("capture");
    return ForwardingDevice::Capture([this, work = std::move(work)] {
      notes_.emplace_back("launch");
      work();
    });
  }

 private:
  std::vector<std::string>& notes_;
};

class SegmentGraphTest : public testing::Test {
 protected:
  std::shared_ptr<const Call> Noting(const std::string& note) {
    return std::make_shared<const Call>([this, note] { notes_.push_back(note); });
  }

  std::vector<std::string> notes_;
  const std::unique_ptr<device::Device> cpu_ = device::MakeCpuDevice();
  NotingDevice device_{*cpu_, notes_};
};

TEST_F(SegmentGraphTest, CallsAreMadeOnceThenCapturedThenLaunched) {
  SegmentGraph graph({Noting("a"), Noting("b")});
  EXPECT_FALSE(graph.captures());
  graph.Run(device_);
  EXPECT_THAT(std::exchange(notes_, {}), ElementsAre("a", "b"));
  EXPECT_TRUE(graph.captures());
  graph.Run(device_);
  EXPECT_THAT(std::exchange(notes_, {}), ElementsAre("capture", "launch", "a", "b"));
  EXPECT_FALSE(graph.captures());
  graph.Run(device_);
  EXPECT_THAT(notes_, ElementsAre("launch", "a", "b"));
}

TEST_F(SegmentGraphTest, TheCallThatThrowsIsKnown) {
  bool fails = false;
  SegmentGraph graph({Noting("a"), std::make_shared<const Call>([&] {
                        if (fails) {
                          throw std::runtime_error("broken");
                        }
                      }),
                      Noting("c")});
  graph.Run(device_);
  EXPECT_EQ(graph.at(), 2u);
  fails = true;
  EXPECT_THROW(graph.Run(device_), std::runtime_error);
  EXPECT_EQ(graph.at(), 1u);
}

// A GPU on which each capture takes two bytes, and other work as many as a test says.
class SmallGpu final : public device::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  bool finishes_in_calls() const override { return false; }
  device::MemoryUse memory_use() const override { return {.used = used}; }
  std::unique_ptr<device::Graph> Capture(std::function<void()> work) override {
    used += 2;
    return ForwardingDevice::Capture(std::move(work));
  }

  int64_t used = 0;
};

TEST_F(SegmentGraphTest, MemoryTakenBetweenCapturesIsNotTheGraphs) {
  SmallGpu gpu(*cpu_);
  const schedules::Outline outline;
  SegmentGraphs graphs(outline, gpu);
  std::vector<SegmentGraph*> both;
  for (const char* name : {"a", "b"}) {
    const std::shared_ptr<const Call> call = Noting(name);
    const BoundInstruction bound{.calls = {call, call}};
    both.push_back(&graphs.Of({.instructions = {&bound}}));
  }
  testing::internal::CaptureStderr();
  for (int run = 0; run < 2; ++run) {
    for (SegmentGraph* graph : both) {
      graphs.Run(*graph);
      gpu.used += 1000;
    }
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("\"bytes_outside_the_arena\":\"4\""));
}

}  // namespace
}  // namespace tandem::trainer
