// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "platform/steady_condition.h"

namespace tandem::trainer {

// Runs tasks beside training, one at a time, on its own thread: saves, and the reports of steps. Used by the
// rank's thread.
class TaskThread {
 public:
  // Returns the empty string if the task succeeded, or why it failed if training may continue. An exception
  // ends the rank.
  using Task = std::function<std::string()>;
  using OnDone = std::function<void(const std::string& error)>;

  // A task that has ended.
  struct Ended {
    int64_t step = 0;   // 0: no task has ended, or a task of step 0
    std::string error;  // empty: it succeeded
  };

  // `name` is for debuggers. `failed` is called at most once, on the tasks' thread, with the exception that a
  // task threw. No task begins afterwards.
  TaskThread(const char* name, std::function<void(const std::exception_ptr& error)> failed);
  // Waits for the task in progress. To end a rank early, abort the task's communicator first.
  ~TaskThread() ABSL_LOCKS_EXCLUDED(mu_);
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Begins a task for `step`. Requires that none is in progress.
  void Begin(int64_t step, Task task) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until no task is in progress. Returns the task that has ended since the last call, or throws its
  // exception.
  Ended Await() ABSL_LOCKS_EXCLUDED(mu_);

  // Calls `then` with the error of the task in progress when that ends, on the tasks' thread. If no task is
  // in progress, calls it at once, on the caller's thread, with the error of the newest task. After an
  // exception it is never called.
  void WhenDone(OnDone then) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // Moves the callbacks that wait for the task to `waiting`. If there are none, marks the task as ended and
  // returns false.
  bool TakeWaiting(const Ended& ended, std::vector<OnDone>& waiting) ABSL_LOCKS_EXCLUDED(mu_);

  const std::function<void(const std::exception_ptr& error)> failed_;
  absl::Mutex mu_;
  platform::SteadyCondition changed_;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<int64_t> step_ ABSL_GUARDED_BY(mu_);  // set while a task is in progress
  Task task_ ABSL_GUARDED_BY(mu_);                    // empty once the thread has taken it
  std::vector<OnDone> waiting_ ABSL_GUARDED_BY(mu_);
  Ended newest_ ABSL_GUARDED_BY(mu_);
  std::exception_ptr thrown_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // must be last, because it uses the other members
};

}  // namespace tandem::trainer
