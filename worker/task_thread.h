// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <thread>
#include <utility>

#include "worker/mailbox.h"

namespace tandem::worker {

// A thread that runs tasks one after the other, until its end; tasks put by then are run.
class TaskThread {
 public:
  TaskThread()
      : thread_([this] {
          while (std::optional<std::function<void()>> task = tasks_.Take(absl::InfiniteDuration())) (*task)();
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
