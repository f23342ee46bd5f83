// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include "absl/time/time.h"
#include "platform/clock.h"

namespace tandem::platform {

// A clock that a test moves. Starts at 2020-01-01 UTC. Thread-safe.
class FakeClock final : public Clock {
 public:
  FakeClock() : FakeClock(absl::FromUnixSeconds(1577836800)) {}
  explicit FakeClock(absl::Time start) : now_(start) {}

  absl::Time Now() const override {
    const std::lock_guard lock(mu_);
    return now_;
  }

  void Advance(absl::Duration step) {
    const std::lock_guard lock(mu_);
    now_ += step;
  }

 private:
  mutable std::mutex mu_;
  absl::Time now_;
};

}  // namespace tandem::platform
