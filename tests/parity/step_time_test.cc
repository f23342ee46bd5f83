// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "tests/device/forwarding_device.h"
#include "tests/parity/fakes.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

constexpr double kSecondsOfARun = 1000;  // far more than the host takes

// Its clock stands still but for a long time between two marks.
class SlowDevice final : public device::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  std::unique_ptr<device::TimeMark> MarkTime() override { return std::make_unique<Time>(marks_++); }

 private:
  class Time final : public device::TimeMark {
   public:
    explicit Time(int64_t number) : number_(number) {}
    int64_t Since(const device::TimeMark& origin) const override {
      return static_cast<int64_t>(kSecondsOfARun * 1e9) *
             (number_ - static_cast<const Time&>(origin).number_);
    }

   private:
    const int64_t number_;
  };

  std::atomic<int64_t> marks_{0};
};

// The runs of the host, which is ahead, take no time.
TEST(StepTimeTest, AStepHasTheSecondsOfItsDevice) {
  const JobRun run = RunJob(MakeJob({.steps = 6, .validate_every_steps = 3}),
                            {.make_backend = [](int) { return std::make_unique<WithDevice<SlowDevice>>(); }});
  ASSERT_EQ(run.steps.size(), 6u);
  for (const v1::StepReport& step : run.steps) {
    // One run computes it; that of a step before a validation, and of the last, applies it as well.
    const int runs = step.step() % 3 == 0 ? 2 : 1;
    EXPECT_GE(step.seconds(), kSecondsOfARun * runs) << step.step();
    EXPECT_LT(step.seconds(), kSecondsOfARun * (runs + 0.9)) << step.step();
  }
}

}  // namespace
}  // namespace tandem::parity
