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

}  // namespace tandem::platform
