// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "platform/steady_condition.h"

namespace tandem::controller {

// The lock of a connection to a database. Its holder may wait for the disk: for milliseconds, or as long as
// the disk stands still. The few threads that serve all callers must not wait that long. Thread-safe.
class ABSL_LOCKABLE DiskLock {
 public:
  // How long a holder may have had the lock before callers with this patience give up. The time counts from
  // when the holder acquired the lock, so once a disk has stood still for a second, such callers fail at
  // once.
  static constexpr absl::Duration kPatience = absl::Seconds(1);

  // Acquires the lock. Returns false if its holder has had it for `patience` and still has it.
  bool TryLock(absl::Duration patience) ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const absl::MutexLock lock(&mu_);
    while (held_) {
      const absl::Duration left = patience - absl::FromChrono(std::chrono::steady_clock::now() - since_);
      if (left <= absl::ZeroDuration()) {
        return false;
      }
      free_.WaitFor(mu_, left);
    }
    held_ = true;
    since_ = std::chrono::steady_clock::now();
    return true;
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const absl::MutexLock lock(&mu_);
    held_ = false;
    free_.NotifyOne();
  }

 private:
  absl::Mutex mu_;
  platform::SteadyCondition free_;
  bool held_ ABSL_GUARDED_BY(mu_) = false;
  std::chrono::steady_clock::time_point since_ ABSL_GUARDED_BY(mu_);
};

// Holds a DiskLock from its construction to its destruction. With a `patience` it may fail to acquire the
// lock: then held() is false and status() is an error. Check one of them before using what the lock guards.
class ABSL_SCOPED_LOCKABLE DiskTurn {
 public:
  explicit DiskTurn(DiskLock& lock, absl::Duration patience = absl::InfiniteDuration())
      ABSL_EXCLUSIVE_LOCK_FUNCTION(lock) ABSL_NO_THREAD_SAFETY_ANALYSIS : lock_(lock),
                                                                          held_(lock.TryLock(patience)) {}
  ~DiskTurn() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (held_) {
      lock_.Unlock();
    }
  }
  DiskTurn(const DiskTurn&) = delete;
  DiskTurn& operator=(const DiskTurn&) = delete;

  bool held() const { return held_; }
  absl::Status status() const {
    return held_ ? absl::OkStatus()
                 : absl::UnavailableError(absl::StrCat("the controller's disk has not answered for ",
                                                       absl::FormatDuration(DiskLock::kPatience),
                                                       "; running jobs continue; try again"));
  }

 private:
  DiskLock& lock_;
  const bool held_;
};

}  // namespace tandem::controller
