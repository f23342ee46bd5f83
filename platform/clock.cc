// SPDX-License-Identifier: Apache-2.0
#include "platform/clock.h"

#include <time.h>

#include <chrono>

#include "absl/time/clock.h"

namespace tandem::platform {
namespace {

class UnjumpingClock final : public Clock {
 public:
  absl::Time Now() const override {
    return start_ + absl::FromChrono(std::chrono::steady_clock::now() - steady_start_);
  }

 private:
  const absl::Time start_ = absl::Now();
  const std::chrono::steady_clock::time_point steady_start_ = std::chrono::steady_clock::now();
};

class SleeplessClock final : public Clock {
 public:
  absl::Time Now() const override {
    timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return absl::TimeFromTimespec(now);
  }
};

}  // namespace

const Clock& SteadyClock() {
  static const UnjumpingClock* const clock = new UnjumpingClock;
  return *clock;
}

const Clock& BootClock() {
  static const SleeplessClock* const clock = new SleeplessClock;
  return *clock;
}

}  // namespace tandem::platform
