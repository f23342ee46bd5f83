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

// Writes checkpoints beside training, one at a time, on its own thread. Used by the rank's thread.
class SaveThread {
 public:
  // Writes a checkpoint. Returns the empty string if it succeeded, or why it failed if training may continue.
  // An exception ends the rank.
  using Save = std::function<std::string()>;
  using OnSaved = std::function<void(const std::string& error)>;

  // A save that has ended.
  struct Ended {
    int64_t step = 0;   // 0: no save has ended
    std::string error;  // empty: it succeeded
  };

  // `failed` is called at most once, on the saving thread, with the exception that a save threw. No save
  // begins afterwards.
  explicit SaveThread(std::function<void(const std::exception_ptr& error)> failed);
  // Waits for the save in progress. To end a rank early, abort the save's communicator first.
  ~SaveThread() ABSL_LOCKS_EXCLUDED(mu_);
  SaveThread(const SaveThread&) = delete;
  SaveThread& operator=(const SaveThread&) = delete;

  // Begins a save. Requires that none is in progress.
  void Begin(int64_t step, Save save) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until no save is in progress. Returns the save that has ended since the last call, or throws its
  // exception.
  Ended Await() ABSL_LOCKS_EXCLUDED(mu_);

  // Calls `then` with the error of the save in progress when that ends, on the saving thread. If no save is
  // in progress, calls it at once, on the caller's thread, with the error of the newest save. After an
  // exception it is never called.
  void WhenSaved(OnSaved then) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // Moves the callbacks that wait for the save to `waiting`. If there are none, marks the save as ended and
  // returns false.
  bool TakeWaiting(const Ended& ended, std::vector<OnSaved>& waiting) ABSL_LOCKS_EXCLUDED(mu_);

  const std::function<void(const std::exception_ptr& error)> failed_;
  absl::Mutex mu_;
  platform::SteadyCondition changed_;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  int64_t step_ ABSL_GUARDED_BY(mu_) = 0;  // the save in progress; 0: none
  Save save_ ABSL_GUARDED_BY(mu_);         // empty once the thread has taken it
  std::vector<OnSaved> waiting_ ABSL_GUARDED_BY(mu_);
  Ended newest_ ABSL_GUARDED_BY(mu_);
  std::exception_ptr thrown_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // must be last, because it uses the other members
};

}  // namespace tandem::trainer
