// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/time/time.h"

namespace tandem::platform {

// The source of "now" for decisions. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  virtual absl::Time Now() const = 0;
};

// The machine's clock as it was at the first call, moved on by CLOCK_MONOTONIC: for deadlines, since it never
// jumps.
const Clock& SteadyClock();

// CLOCK_BOOTTIME, from the epoch at the machine's start. It runs on while the machine sleeps, so it measures
// how long something has been away.
const Clock& BootClock();

}  // namespace tandem::platform
