// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "platform/clock.h"
#include "platform/control_groups.h"

namespace tandem::worker {

// Tells whether a process that died by SIGKILL was killed by the kernel for lack of memory, or by a user or a
// program: only in the first case does the kernel's count of its kills grow. Thread-safe.
class OutOfMemoryWatch {
 public:
  // `kills` returns the kernel's count. `memory_bytes` is the memory of this worker and all its ranks, for
  // messages.
  OutOfMemoryWatch(const platform::Clock& clock, std::function<int64_t()> kills, int64_t memory_bytes)
      : clock_(clock),
        kills_(std::move(kills)),
        memory_bytes_(memory_bytes),
        before_(kills_()),
        newest_(before_) {}
  OutOfMemoryWatch()
      : OutOfMemoryWatch(
            platform::SteadyClock(), [] { return platform::OutOfMemoryKills(); }, platform::MemoryBytes()) {}

  // Samples the count. Call it about once a second, so that an old kill is not taken for the cause of a later
  // death.
  void Look() ABSL_LOCKS_EXCLUDED(mu_);

  // For a process that has just died by SIGKILL, with a peak of `held_bytes`: returns "out of memory: ...",
  // or "" if the kernel has killed nothing of this worker in the last 10 to 20 seconds.
  std::string WhyKilled(int64_t held_bytes) const ABSL_LOCKS_EXCLUDED(mu_);
  // The message "out of memory: ..." for a process that is known to have been killed by the kernel.
  std::string TextOf(int64_t held_bytes) const;

 private:
  const platform::Clock& clock_;
  const std::function<int64_t()> kills_;
  const int64_t memory_bytes_;
  mutable absl::Mutex mu_;
  int64_t before_ ABSL_GUARDED_BY(mu_);  // the count at the sample before the newest
  int64_t newest_ ABSL_GUARDED_BY(mu_);  // the count at the newest sample
  absl::Time looked_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace tandem::worker
