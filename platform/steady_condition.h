// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::platform {

// A condition variable for an absl::Mutex whose time limits are measured by CLOCK_MONOTONIC. (The timed waits
// of absl end at a time of the wall clock: if that is set back by an hour, they last an hour longer.) Every
// wait requires that `mu` is held, and releases it while it waits. Thread-safe.
class SteadyCondition {
 public:
  // Waits until notified. May also return without a reason, so the caller must check its condition again.
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

  // Waits until `ready()`, which is called with `mu` held, returns true, but at most `limit` (which may be
  // infinite). Returns the last result of `ready()`. Threads that change what `ready` reads must notify.
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

  // Without the analysis, since a caller's predicate is annotated with the caller's name of the mutex, not
  // with `mu`.
  template <class Ready>
  static bool IsReady(const Ready& ready) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return ready();
  }

  std::condition_variable_any changed_;
};

}  // namespace tandem::platform
