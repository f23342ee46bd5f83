// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "platform/steady_condition.h"

namespace tandem::trainer {

// Writes checkpoints beside training, one at a time, on a thread of its own. Used by the rank's thread.
class SaveThread {
 public:
  // Returns why it failed although training goes on; empty: it succeeded. What it throws ends the rank.
  using Save = std::function<std::string()>;
  using OnSaved = std::function<void(const std::string& error)>;

  // A save that has ended.
  struct Ended {
    int64_t step = 0;   // 0: none has
    std::string error;  // empty: it succeeded
  };

  // failed: called at most once, on this thread, with what a save threw; no save begins after it.
  explicit SaveThread(std::function<void(const std::exception_ptr& error)> failed);
  // Waits for the save in progress: whoever ends a rank early aborts the save's communicator first.
  ~SaveThread() ABSL_LOCKS_EXCLUDED(mu_);
  SaveThread(const SaveThread&) = delete;
  SaveThread& operator=(const SaveThread&) = delete;

  // Requires that no save is in progress.
  void Begin(int64_t step, Save save) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until no save is in progress. Returns what has ended since the last call. Throws what that threw.
  Ended Await() ABSL_LOCKS_EXCLUDED(mu_);

  // Calls `then` with the error of the save in progress once that has ended, on this thread, or with that of
  // the newest at once if none is. Never after a save that threw.
  void WhenSaved(OnSaved then) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // Those that wait for the save that has ended; where there are none it counts as ended from then on, and
  // the result is false.
  bool TakeWaiting(const Ended& ended, std::vector<OnSaved>& waiting) ABSL_LOCKS_EXCLUDED(mu_);

  const std::function<void(const std::exception_ptr& error)> failed_;
  absl::Mutex mu_;
  platform::SteadyCondition changed_;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  int64_t step_ ABSL_GUARDED_BY(mu_) = 0;  // in progress; 0: none
  Save save_ ABSL_GUARDED_BY(mu_);         // empty once it is taken
  std::vector<OnSaved> waiting_ ABSL_GUARDED_BY(mu_);
  Ended newest_ ABSL_GUARDED_BY(mu_);
  std::exception_ptr thrown_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // the last: it uses the others
};

}  // namespace tandem::trainer
