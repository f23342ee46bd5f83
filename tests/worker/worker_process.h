// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace tandem::worker {

// A real tandem-worker process with tandem-fake-trainer. The destructor kills it if it still runs.
class WorkerProcess {
 public:
  struct Options {
    std::string program = TANDEM_WORKER;
    std::string controller;
    std::string state_folder;
    int slots = 4;
    std::string trainer = TANDEM_FAKE_TRAINER;
    std::vector<std::string> more;         // further arguments
    std::vector<std::string> environment;  // "NAME=value", in addition to the test's own
    std::string log;                       // file for its standard error; empty: that of the test
  };
  explicit WorkerProcess(const Options& options);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  pid_t pid() const { return pid_; }

  void Signal(int signal);

  // Limits its open descriptors from now on.
  void LimitDescriptors(int limit);

  // Waits for the exit and returns the wait status; nullopt if it still runs after `limit`.
  std::optional<int> Wait(absl::Duration limit = absl::Seconds(60));

  // Kills the process with SIGKILL and waits until it is gone.
  void Kill();

 private:
  pid_t pid_ = 0;
};

// Whether the process exists and is no zombie.
bool IsAlive(pid_t pid);
// Waits until none of the processes is alive; returns false if one still is after `limit`.
bool WaitUntilGone(const std::vector<pid_t>& pids, absl::Duration limit = absl::Seconds(30));

}  // namespace tandem::worker
