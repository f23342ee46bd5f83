#pragma once

#include "absl/time/time.h"

namespace tandem::platform {

// What decisions take for "now". Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  virtual absl::Time Now() const = 0;
};

// The machine's clock.
const Clock& SystemClock();

}  // namespace tandem::platform
