// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "device/stream.h"

namespace tandem::device {

// Recycles the events of one stream: its next Record uses one again that has no references. `Pooled` derives
// from PooledEvent<Pooled>. The pool lives as long as the stream or any of its events. Thread-safe, because
// the last reference to an event may end on any thread.
template <typename Pooled>
class EventPool : public std::enable_shared_from_this<EventPool<Pooled>> {
 public:
  // Returns a recycled event, or the result of `make` if there is none.
  template <typename Make>
  Pooled* Take(const Make& make) ABSL_LOCKS_EXCLUDED(mu_) {
    std::unique_ptr<Pooled> event;
    {
      const absl::MutexLock lock(&mu_);
      if (!free_.empty()) {
        event = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (event == nullptr) {
      event = make();
      const absl::MutexLock lock(&mu_);
      free_.reserve(++made_);  // so that Put never allocates
    }
    event->pool_ = this->shared_from_this();
    return event.release();
  }

  void Put(Pooled* event) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    free_.emplace_back(event);
  }

 private:
  absl::Mutex mu_;
  std::vector<std::unique_ptr<Pooled>> free_ ABSL_GUARDED_BY(mu_);
  size_t made_ ABSL_GUARDED_BY(mu_) = 0;
};

template <typename Pooled>
class PooledEvent : public Event::State {
 private:
  friend class EventPool<Pooled>;

  void Recycle() final {
    const std::shared_ptr<EventPool<Pooled>> pool = std::move(pool_);
    pool->Put(static_cast<Pooled*>(this));
  }

  std::shared_ptr<EventPool<Pooled>> pool_;  // set while the event has references
};

}  // namespace tandem::device
