// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "platform/clock.h"

namespace tandem::controller {

// Bounds of one request, besides its total size: far above any useful request, and far below a harmful one.
struct RequestLimits {
  size_t string_bytes = size_t{64} << 10;  // of each string
  int list_entries = 100'000;              // of each list or map of strings or messages
};

// The bounds of messages of workers, which cut their own strings to half of these
// (worker/controller_client.cc).
inline constexpr RequestLimits kLimitsOfWorker{.string_bytes = size_t{16} << 10, .list_entries = 20'000};

// InvalidArgument for the first field beyond the limits, with its path, its size and what is allowed. Bytes
// and lists of numbers are bounded only by the message's size. Reads only the sizes of lists and strings.
absl::Status CheckLimits(const google::protobuf::Message& request, const RequestLimits& limits = {});

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

// Counts by key, such as the open calls of each caller; keys whose count is 0 take no memory. Thread-safe.
class Tally {
 public:
  void Add(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    ++nums_[key];
  }
  // Requires a key that was added and not removed.
  void Remove(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    const auto it = nums_.find(key);
    if (--it->second == 0) {
      nums_.erase(it);
    }
  }
  size_t NumOf(const std::string& key) const ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    const auto it = nums_.find(key);
    return it == nums_.end() ? 0 : it->second;
  }

 private:
  mutable absl::Mutex mu_;
  std::map<std::string, size_t> nums_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::controller
