// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tandem::cli {

// A daemon that this process started: in a process group of its own, so that Ctrl-C does not reach it; killed
// by the kernel when this process dies; its output appended to a log. Destruction kills it. Not thread-safe.
class DaemonProcess {
 public:
  struct Command {
    std::string name;     // for people: "worker local-1"
    std::string program;  // path
    std::vector<std::string> arguments;
    std::string log;  // path
  };

  // Call from the main thread: the kernel's death signal follows the thread that started it.
  // Error: one line that names the program and says what to do.
  static absl::StatusOr<DaemonProcess> Start(Command command);
  DaemonProcess(DaemonProcess&& other) noexcept;
  DaemonProcess& operator=(DaemonProcess&&) = delete;
  ~DaemonProcess();

  const Command& command() const { return command_; }

  bool Running();

  // "worker local-1 was killed by signal 9 (SIGKILL)". Requires that it ran out.
  std::string EndText() const;

  // The last lines of its log, for people, indented by two blanks; empty if there are none.
  std::string LogTail(int lines) const;

  // Sends a signal to its process group, unless it has ended.
  void Signal(int signal);

  // Waits for its end, at most `timeout`; returns whether it has ended.
  bool WaitEnd(absl::Duration timeout);

 private:
  DaemonProcess(Command command, pid_t pid, off_t log_start)
      : command_(std::move(command)), pid_(pid), log_start_(log_start) {}

  Command command_;
  pid_t pid_ = -1;       // -1: moved from
  off_t log_start_ = 0;  // the log's size when this process began
  bool ended_ = false;
  int wait_status_ = 0;
};

}  // namespace tandem::cli
