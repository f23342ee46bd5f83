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

// For deadlines: starts at the wall clock's time of the first call and advances with CLOCK_MONOTONIC, so it
// never jumps.
const Clock& SteadyClock();

// CLOCK_BOOTTIME: Now() is the epoch when the machine starts. It also advances while the machine sleeps, so
// it measures how long a peer has really been silent.
const Clock& BootClock();

}  // namespace tandem::platform
