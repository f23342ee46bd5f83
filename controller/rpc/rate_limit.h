// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "platform/clock.h"

namespace tandem::controller {

// Limits how often each key may do something: `per_second` in the long run, `burst` at once. A key that has
// done nothing for as long as a burst takes to refill is forgotten, which bounds the memory. Thread-safe.
class RateLimit {
 public:
  RateLimit(double per_second, double burst, const platform::Clock& clock)
      : per_second_(per_second), burst_(burst), clock_(clock) {}

  // Returns zero, and counts it, if `key` may do it now; otherwise the time until it may.
  absl::Duration Take(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_);

  double per_second() const { return per_second_; }

 private:
  struct Bucket {
    double tokens = 0;
    absl::Time at;
  };

  const double per_second_;
  const double burst_;
  const platform::Clock& clock_;
  absl::Mutex mu_;
  std::map<std::string, Bucket> buckets_ ABSL_GUARDED_BY(mu_);
  absl::Time swept_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace tandem::controller
