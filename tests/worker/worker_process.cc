// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "worker/processes.h"

namespace tandem::worker {

WorkerProcess::WorkerProcess(const Options& options) {
  std::vector<std::string> args = {"/usr/bin/env"};
  args.insert(args.end(), options.environment.begin(), options.environment.end());
  args.insert(args.end(),
              {options.program, "--controller", options.controller, "--id", "w1", "--state",
               options.state_folder, "--slots", std::to_string(options.slots), "--trainer", options.trainer});
  args.insert(args.end(), options.more.begin(), options.more.end());
  std::vector<char*> argv;
  for (std::string& arg : args) {
    argv.push_back(arg.data());
  }
  argv.push_back(nullptr);
  pid_ = _Fork();
  if (pid_ == 0) {
    // A test that crashes must not leave a daemon that trains on, and whose output ctest waits for.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!options.log.empty()) {
      dup2(open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), STDERR_FILENO);
    }
    execv(argv[0], argv.data());
    _exit(127);
  }
}

WorkerProcess::~WorkerProcess() {
  if (pid_ > 0) {
    Kill();
  }
}

void WorkerProcess::Signal(int signal) { kill(pid_, signal); }

void WorkerProcess::LimitDescriptors(int limit) {
  rlimit now{};
  prlimit(pid_, RLIMIT_NOFILE, nullptr, &now);
  now.rlim_cur = static_cast<rlim_t>(limit);
  prlimit(pid_, RLIMIT_NOFILE, &now, nullptr);
}

std::optional<int> WorkerProcess::Wait(absl::Duration limit) {
  const absl::Time deadline = absl::Now() + limit;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (absl::Now() > deadline) {
      return std::nullopt;
    }
    absl::SleepFor(absl::Milliseconds(2));
  }
  pid_ = 0;
  return status;
}

void WorkerProcess::Kill() {
  Signal(SIGKILL);
  Wait(absl::InfiniteDuration());
}

bool IsAlive(pid_t pid) { return Identify(pid).ok(); }

bool WaitUntilGone(const std::vector<pid_t>& pids, absl::Duration limit) {
  const absl::Time deadline = absl::Now() + limit;
  while (std::any_of(pids.begin(), pids.end(), IsAlive)) {
    if (absl::Now() > deadline) {
      return false;
    }
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

}  // namespace tandem::worker
