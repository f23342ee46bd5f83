// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::platform {

// The condition variable of what an absl::Mutex guards, for waits with a limit. Those of absl end at a time
// of the machine's clock: one that is set back by an hour meanwhile lasts an hour longer. These go by
// CLOCK_MONOTONIC. Thread-safe.
class SteadyCondition {
 public:
  // Until notified, or `limit` has passed, or for no reason: look at what is waited for again. Requires that
  // `mu` is held; it is free meanwhile.
  void WaitFor(absl::Mutex& mu, absl::Duration limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    constexpr absl::Duration kLongest = absl::Hours(1);  // infinite: beyond what the clock can count
    Lockable lockable{mu};
    changed_.wait_for(lockable, absl::ToChronoNanoseconds(std::clamp(limit, absl::ZeroDuration(), kLongest)));
  }

  void NotifyAll() { changed_.notify_all(); }

 private:
  struct Lockable {
    absl::Mutex& mu;
    void lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mu.Lock(); }
    void unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mu.Unlock(); }
  };

  std::condition_variable_any changed_;
};

}  // namespace tandem::platform
