// SPDX-License-Identifier: Apache-2.0
#include "trainer/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "checkpoint/work_together.h"
#include "device/device.h"
#include "nlohmann/json.hpp"

namespace tandem::trainer {
namespace {

// Reached when the test says so.
class ManualEvent final : public device::Event::State {
 public:
  bool IsReached() override {
    if (broken) {
      throw device::DeviceError("the device has failed");
    }
    return reached;
  }

  std::atomic<bool> reached{false};
  std::atomic<bool> broken{false};

 private:
  void Recycle() override {}
};

// Two streams of a device that only issues.
class ProgressTest : public testing::Test {
 protected:
  device::Event NewEvent() { return device::Event(&events_.emplace_back()); }

  std::deque<ManualEvent> events_;  // outlives the progress, which refers to them
  link::SharedPage page_;
  Progress progress_{page_, /*looks=*/true};
  const std::unique_ptr<device::Stream> a_ = device::MakeCpuStream("a", device::StreamError());
  const std::unique_ptr<device::Stream> b_ = device::MakeCpuStream("b", device::StreamError());
};

TEST_F(ProgressTest, PageShowsIssuedWorkOnceFinished) {
  progress_.Issued(a_.get(), {.run = 0, .step = 1, .instruction = 4}, NewEvent());
  progress_.Issued(a_.get(), {.run = 0, .step = 1, .instruction = 7}, NewEvent());
  progress_.Look();
  EXPECT_EQ(page_.instruction, -1);
  EXPECT_EQ(page_.progress_monotonic_ns, 0);
  events_[0].reached = true;
  progress_.Look();
  EXPECT_EQ(page_.instruction, 4);
  EXPECT_EQ(page_.step, 1);
  EXPECT_GT(page_.progress_monotonic_ns, 0);
  events_[1].reached = true;
  progress_.Look();
  EXPECT_EQ(page_.instruction, 7);
}

TEST_F(ProgressTest, ItLooksByItself) {
  progress_.Issued(a_.get(), {.run = 0, .step = 3, .instruction = 4}, NewEvent());
  events_[0].reached = true;
  while (page_.instruction != 4) {
    std::this_thread::yield();
  }
  EXPECT_EQ(page_.step, 3);
}

TEST_F(ProgressTest, PageShowsTheStreamThatMoved) {
  progress_.Issued(a_.get(), {.run = 0, .step = 1, .instruction = 9}, NewEvent());
  progress_.Issued(b_.get(), {.run = 0, .step = 1, .instruction = 5}, NewEvent());
  events_[0].reached = true;
  progress_.Look();
  EXPECT_EQ(page_.instruction, 9);
  events_[1].reached = true;
  progress_.Look();
  EXPECT_EQ(page_.instruction, 5) << "it finished later";
}

TEST_F(ProgressTest, StepsNeverGoBack) {
  progress_.Issued(a_.get(), {.run = 0, .step = 1, .instruction = 90}, NewEvent());
  progress_.Issued(b_.get(), {.run = 1, .step = 2, .instruction = 2}, NewEvent());
  events_[1].reached = true;  // run 0 has ended before; a look may see that later
  progress_.Look();
  EXPECT_EQ(page_.step, 2);
  events_[0].reached = true;
  progress_.Look();
  EXPECT_EQ(page_.step, 2);
  EXPECT_EQ(page_.instruction, 2);
}

TEST_F(ProgressTest, FailedDeviceLeavesThePage) {
  progress_.Issued(a_.get(), {.run = 0, .step = 1, .instruction = 1}, NewEvent());
  progress_.Issued(a_.get(), {.run = 0, .step = 1, .instruction = 2}, NewEvent());
  events_[0].reached = true;
  events_[1].broken = true;
  EXPECT_NO_THROW(progress_.Look());
  EXPECT_EQ(page_.instruction, 1);
}

TEST(ProgressOfCallsTest, PageShowsReturnedWorkAtOnce) {
  link::SharedPage page;
  Progress progress(page, /*looks=*/false);
  progress.Finished({.run = 0, .step = 2, .instruction = 3});
  EXPECT_EQ(page.instruction, 3);
  EXPECT_EQ(page.step, 2);
}

using testing::ElementsAre;

class ShownProgressTest : public testing::Test {
 protected:
  // The percents of the lines that the log gets at these amounts of a `path`.
  std::vector<int> LoggedOf(ShownProgress& shown, const std::string& path, const std::vector<int64_t>& done,
                            int64_t total) {
    testing::internal::CaptureStderr();
    for (const int64_t amount : done) {
      shown({.path = path, .done = amount, .total = total});
    }
    const std::string logged = testing::internal::GetCapturedStderr();
    std::vector<int> percents;
    for (const absl::string_view line : absl::StrSplit(logged, '\n', absl::SkipEmpty())) {
      const nlohmann::json json = nlohmann::json::parse(line.begin(), line.end());
      EXPECT_EQ(json.at("msg"), "the ranks read");
      EXPECT_EQ(json.at("path"), path);
      EXPECT_EQ(json.at("bytes"), std::to_string(total));
      percents.push_back(std::stoi(json.at("percent").get<std::string>()));
    }
    return percents;
  }

  int moves_ = 0;
  ShownProgress shown_{/*logs=*/true, "the ranks read", "bytes", [this] { ++moves_; }};
};

TEST_F(ShownProgressTest, EveryTenthIsALine) {
  EXPECT_THAT(LoggedOf(shown_, "a", {0, 50, 100, 150, 199, 200, 990, 1000}, 1000),
              ElementsAre(10, 20, 90, 100));
  EXPECT_EQ(moves_, 8);
  EXPECT_THAT(LoggedOf(shown_, "b", {300}, 1000), ElementsAre(30));
  EXPECT_THAT(LoggedOf(shown_, "c", {300}, 1000), ElementsAre(30)) << "another path begins again";
}

TEST_F(ShownProgressTest, WhatIsDoneAtOnceIsNoLine) {
  EXPECT_THAT(LoggedOf(shown_, "a", {1000}, 1000), ElementsAre());
  EXPECT_THAT(LoggedOf(shown_, "empty", {0}, 0), ElementsAre());
  EXPECT_EQ(moves_, 2);
}

TEST_F(ShownProgressTest, SilentRankStillMoves) {
  ShownProgress silent(/*logs=*/false, "the ranks read", "bytes", [this] { ++moves_; });
  EXPECT_THAT(LoggedOf(silent, "a", {100, 500, 1000}, 1000), ElementsAre());
  EXPECT_EQ(moves_, 3);
}

}  // namespace
}  // namespace tandem::trainer
