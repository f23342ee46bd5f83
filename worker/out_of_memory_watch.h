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

// Distinguishes a process that the kernel killed for lack of memory from one that a user or program killed:
// both die of SIGKILL, and only the kernel's count of its own kills differs. Thread-safe.
class OutOfMemoryWatch {
 public:
  // `kills`: the count; `memory_bytes`: how much there is for all ranks.
  OutOfMemoryWatch(const platform::Clock& clock, std::function<int64_t()> kills, int64_t memory_bytes)
      : clock_(clock),
        kills_(std::move(kills)),
        memory_bytes_(memory_bytes),
        before_(kills_()),
        newest_(before_) {}
  OutOfMemoryWatch()
      : OutOfMemoryWatch(
            platform::SteadyClock(), [] { return platform::OutOfMemoryKills(); }, platform::MemoryBytes()) {}

  // Looks at the count from time to time, so that an old kill is not taken for the cause of a later death.
  void Look() ABSL_LOCKS_EXCLUDED(mu_);

  // Of a process that has just died of SIGKILL and held at most so much: "out of memory: ...", or "" if the
  // kernel has killed nothing of this worker in the last seconds.
  std::string WhyKilled(int64_t held_bytes) const ABSL_LOCKS_EXCLUDED(mu_);
  // The same text for a process that is known to have been killed by the kernel.
  std::string TextOf(int64_t held_bytes) const;

 private:
  const platform::Clock& clock_;
  const std::function<int64_t()> kills_;
  const int64_t memory_bytes_;
  mutable absl::Mutex mu_;
  int64_t before_ ABSL_GUARDED_BY(mu_);  // at least one interval old, or that of the start
  int64_t newest_ ABSL_GUARDED_BY(mu_);
  absl::Time looked_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace tandem::worker
