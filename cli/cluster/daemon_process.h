// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tandem::cli {

// A daemon that this process started. It is in its own process group, so Ctrl-C does not reach it; its
// output is appended to a log; the kernel kills it when this process dies. Destruction kills it. Not
// thread-safe.
class DaemonProcess {
 public:
  struct Command {
    std::string name;     // in messages: "worker local-1"
    std::string program;  // path
    std::vector<std::string> arguments;
    std::string log;  // path
  };

  // Must be called on the main thread: the kernel kills the daemon when the thread that started it ends.
  // Errors are one line that names the program and says what to do.
  static absl::StatusOr<DaemonProcess> Start(Command command);
  DaemonProcess(DaemonProcess&& other) noexcept;
  DaemonProcess& operator=(DaemonProcess&&) = delete;
  ~DaemonProcess();

  const Command& command() const { return command_; }

  bool Running();

  // "worker local-1 was killed by signal 9 (SIGKILL)". Requires that the daemon has ended.
  std::string EndText() const;

  // Returns the last lines that the daemon wrote to its log, readable, each behind two spaces; empty if
  // there are none.
  std::string LogTail(int lines) const;

  // Sends a signal to the process group of the daemon, unless it has ended.
  void Signal(int signal);

  // Waits at most `timeout` until the daemon ends; returns whether it has ended.
  bool WaitEnd(absl::Duration timeout);

 private:
  DaemonProcess(Command command, pid_t pid, int64_t log_start)
      : command_(std::move(command)), pid_(pid), log_start_(log_start) {}

  Command command_;
  pid_t pid_ = -1;         // -1: moved from
  int64_t log_start_ = 0;  // size of the log when the daemon was started
  bool ended_ = false;
  int wait_status_ = 0;
};

}  // namespace tandem::cli
