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
// CLOCK_MONOTONIC. Every wait requires that `mu` is held; it is free meanwhile. Thread-safe.
class SteadyCondition {
 public:
  // Waits until notified. May also return for no reason: look at what is waited for again.
  void Wait(absl::Mutex& mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    Lockable lockable{mu};
    changed_.wait(lockable);
  }

  // As Wait, for at most `limit`.
  void WaitFor(absl::Mutex& mu, absl::Duration limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    constexpr absl::Duration kLongest = absl::Hours(1);  // infinite: beyond what the clock can count
    Lockable lockable{mu};
    changed_.wait_for(lockable, absl::ToChronoNanoseconds(std::clamp(limit, absl::ZeroDuration(), kLongest)));
  }

  // Waits until `ready()` is true, which is called with `mu` held, for at most `limit` (infinite: forever).
  // Returns whether it is true. Threads that change what `ready` reads notify.
  template <class Ready>
  bool AwaitFor(absl::Mutex& mu, absl::Duration limit, const Ready& ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    while (!IsReady(ready)) {
      const absl::Duration left = limit - absl::FromChrono(std::chrono::steady_clock::now() - begin);
      if (left <= absl::ZeroDuration()) {
        return false;
      }
      WaitFor(mu, left);
    }
    return true;
  }

  void NotifyOne() { changed_.notify_one(); }
  void NotifyAll() { changed_.notify_all(); }

 private:
  struct Lockable {
    absl::Mutex& mu;
    void lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mu.Lock(); }
    void unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mu.Unlock(); }
  };

  // Lets a caller's predicate be annotated with its own name of the mutex, which is not `mu` here.
  template <class Ready>
  static bool IsReady(const Ready& ready) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return ready();
  }

  std::condition_variable_any changed_;
};

}  // namespace tandem::platform
