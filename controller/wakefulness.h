// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::controller {

// Knows when this process last stood still (SIGSTOP, a suspended machine, a virtual machine that is moved):
// when none of its threads called Touch for longer than `pause`. It heard nothing meanwhile, so the silence
// of others counts only from the end of the standstill. Thread-safe.
class Wakefulness {
 public:
  Wakefulness(absl::Time now, absl::Duration pause) : pause_(pause), last_(now), since_(now) {}

  // Records that a thread runs at `now`. Returns when the last standstill ended, or when this object was
  // made. Call it more often than once per `pause`.
  absl::Time Touch(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    if (now - last_ > pause_) {
      since_ = now;
    }
    last_ = std::max(last_, now);
    return since_;
  }

 private:
  const absl::Duration pause_;
  absl::Mutex mu_;
  absl::Time last_ ABSL_GUARDED_BY(mu_);
  absl::Time since_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::controller
