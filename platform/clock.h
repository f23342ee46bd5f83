// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/time/time.h"

namespace tandem::platform {

// This folder is the machine as the other folders see it. Clock, Random and Files are interfaces, so that
// tests can replace them. Errors of system calls become absl::Status by FileError (regular_file.h),
// SystemError (system_error.h) and the macros of status_macros.h.

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
