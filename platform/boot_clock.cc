// SPDX-License-Identifier: Apache-2.0
#include "platform/boot_clock.h"

#include <time.h>

namespace tandem::platform {
namespace {

class SleeplessClock final : public Clock {
 public:
  absl::Time Now() const override {
    timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return absl::TimeFromTimespec(now);
  }
};

}  // namespace

const Clock& BootClock() {
  static const SleeplessClock* const clock = new SleeplessClock;
  return *clock;
}

}  // namespace tandem::platform
