// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tandem::platform {

// Passes items from one thread to another in order; the first waits while `most` are queued. Thread-safe.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t most) : most_(most) {}

  // Waits for room. False, without `item`, once the queue is ended.
  bool Push(T item) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    while (items_.size() >= most_ && !ended_) {
      changed_.Wait(&mu_);
    }
    if (ended_) {
      return false;
    }
    items_.push_back(std::move(item));
    changed_.SignalAll();
    return true;
  }

  // Waits for an item. None: the queue is ended, and empty.
  std::optional<T> Pop() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    while (items_.empty() && !ended_) {
      changed_.Wait(&mu_);
    }
    if (items_.empty()) {
      return std::nullopt;
    }
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    changed_.SignalAll();
    return item;
  }

  // Nothing comes any more; what is there can still be taken.
  void End() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    ended_ = true;
    changed_.SignalAll();
  }

  // The same, and what is there is dropped: the thread that takes wants no more.
  void Abandon() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    ended_ = true;
    items_.clear();
    changed_.SignalAll();
  }

 private:
  const size_t most_;
  absl::Mutex mu_;
  absl::CondVar changed_;
  std::deque<T> items_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tandem::platform
