// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "platform/steady_condition.h"

namespace tandem::worker {

// A queue from many threads to one. Waits by the steady clock, so a change of the wall clock delays nothing.
// Thread-safe.
template <typename Item>
class Mailbox {
 public:
  // Adds an item. Does nothing after Close.
  void Put(Item item) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    if (closed_) {
      return;
    }
    items_.push_back(std::move(item));
    changed_.NotifyOne();
  }

  // Removes and returns the oldest item. Returns nullopt if none arrives within `limit`, or if the mailbox is
  // closed and empty.
  std::optional<Item> Take(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    changed_.AwaitFor(mu_, limit,
                      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return closed_ || !items_.empty(); });
    if (items_.empty()) {
      return std::nullopt;
    }
    Item item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  // Refuses further items; queued items can still be taken.
  void Close() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    closed_ = true;
    changed_.NotifyAll();
  }

  bool closed() const ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    return closed_;
  }

 private:
  mutable absl::Mutex mu_;
  platform::SteadyCondition changed_;
  std::deque<Item> items_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

// A thread that runs tasks one after another. The destructor waits until all of them have run.
class TaskThread {
 public:
  TaskThread()
      : thread_([this] {
          while (std::optional<std::function<void()>> task = tasks_.Take(absl::InfiniteDuration())) {
            (*task)();
          }
        }) {}
  ~TaskThread() {
    tasks_.Close();
    thread_.join();
  }

  void Run(std::function<void()> task) { tasks_.Put(std::move(task)); }

 private:
  Mailbox<std::function<void()>> tasks_;
  std::thread thread_;
};

}  // namespace tandem::worker
