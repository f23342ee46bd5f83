// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace tandem::worker {

// A real tandem-worker with tandem-fake-trainer; killed at the end if it still runs.
class WorkerProcess {
 public:
  struct Options {
    std::string program = TANDEM_WORKER;
    std::string controller;
    std::string state_folder;
    int slots = 4;
    std::string trainer = TANDEM_FAKE_TRAINER;
    std::vector<std::string> more;                   // further arguments
    std::map<std::string, std::string> environment;  // set besides the test's
    std::string log;                                 // file of its standard error; empty: the test's
  };
  explicit WorkerProcess(const Options& options);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  pid_t pid() const { return pid_; }

  void Signal(int signal);

  // Limits its open descriptors from now on.
  void LimitDescriptors(int limit);

  // The wait status; nullopt: it still runs after `limit`.
  std::optional<int> Wait(absl::Duration limit = absl::Seconds(60));

  // SIGKILL, and gone.
  void Kill();

 private:
  pid_t pid_ = 0;
};

// Exists, and is not a zombie.
bool IsAlive(pid_t pid);
// Polls until none of them is alive; false: not within `limit`.
bool WaitUntilGone(const std::vector<pid_t>& pids, absl::Duration limit = absl::Seconds(30));

}  // namespace tandem::worker
