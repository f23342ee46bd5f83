// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/time/time.h"

namespace tandem::worker {

// A queue from many threads to one. Waits on the steady clock, so a jump of the machine's time delays
// nothing. Thread-safe.
template <typename Item>
class Mailbox {
 public:
  // After Close nothing is taken any more.
  void Put(Item item) {
    const std::lock_guard lock(mu_);
    if (closed_) {
      return;
    }
    items_.push_back(std::move(item));
    changed_.notify_one();
  }

  // The oldest item; nullopt: none came within `limit` (infinite: never), or the box is closed and empty.
  std::optional<Item> Take(absl::Duration limit) {
    std::unique_lock lock(mu_);
    const auto ready = [this] { return closed_ || !items_.empty(); };
    if (limit == absl::InfiniteDuration()) {
      changed_.wait(lock, ready);
    } else {
      changed_.wait_for(lock, absl::ToChronoNanoseconds(limit), ready);
    }
    if (items_.empty()) {
      return std::nullopt;
    }
    Item item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  // Queued items remain readable.
  void Close() {
    const std::lock_guard lock(mu_);
    closed_ = true;
    changed_.notify_all();
  }

  bool closed() const {
    const std::lock_guard lock(mu_);
    return closed_;
  }

 private:
  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool closed_ = false;
};

// A thread that runs tasks one after the other, until its end; tasks put by then are run.
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
