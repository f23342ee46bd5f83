// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::platform {

// Bounds the log of something that may happen often: its first occurrence is logged, and then one in ten
// seconds at most. Thread-safe.
class RareLog {
 public:
  // Counts an occurrence. If it is to be logged, returns how many there were since the last one that was
  // logged, otherwise 0.
  int64_t Count(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    ++occurrences_;
    if (now - logged_ < absl::Seconds(10)) {
      return 0;
    }
    logged_ = now;
    return std::exchange(occurrences_, 0);
  }

  // Makes the next occurrence one to be logged.
  void Reset() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    logged_ = absl::InfinitePast();
  }

 private:
  absl::Mutex mu_;
  int64_t occurrences_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time logged_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace tandem::platform
