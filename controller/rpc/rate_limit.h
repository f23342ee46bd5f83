// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "platform/clock.h"

namespace tandem::controller {

// How often each of many may do something: `per_second` in the long run, `burst` at once. Who has done
// nothing for as long as a burst takes to come back is forgotten, so memory is bounded by who is there.
// Thread-safe.
class RateLimit {
 public:
  RateLimit(double per_second, double burst, const platform::Clock& clock)
      : per_second_(per_second), burst_(burst), clock_(clock) {}

  // Zero: it may, and has; else how long until it may.
  absl::Duration Take(const std::string& who) ABSL_LOCKS_EXCLUDED(mu_);

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
