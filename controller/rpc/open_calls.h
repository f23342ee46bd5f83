// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tls/identity.h"

namespace tandem::controller {

// Counts by key; keys whose count is 0 take no memory. Not thread-safe.
class Tally {
 public:
  void Add(const std::string& key) { ++nums_[key]; }
  // Requires a key that was added and not removed.
  void Remove(const std::string& key) {
    const auto it = nums_.find(key);
    if (--it->second == 0) {
      nums_.erase(it);
    }
  }
  size_t NumOf(const std::string& key) const {
    const auto it = nums_.find(key);
    return it == nums_.end() ? 0 : it->second;
  }

 private:
  std::map<std::string, size_t> nums_;
};

// Counts the open calls of each caller, streams included. This bounds the memory that one user's calls may
// hold (Access::kMostOpenCalls). Thread-safe.
class OpenCalls {
 public:
  void Add(const tls::Identity& identity) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    tally_.Add(tls::ToText(identity));
  }
  void Remove(const tls::Identity& identity) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    tally_.Remove(tls::ToText(identity));
  }
  size_t NumOf(const tls::Identity& identity) const ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    return tally_.NumOf(tls::ToText(identity));
  }

 private:
  mutable absl::Mutex mu_;
  Tally tally_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::controller
