// SPDX-License-Identifier: Apache-2.0
#include "trainer/progress.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>

#include "device/device.h"

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

}  // namespace
}  // namespace tandem::trainer
