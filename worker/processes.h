// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tandem::worker {

// Identifies a process uniquely until the machine restarts: a pid alone may be reused.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_time = 0;  // in clock ticks since the boot
  bool operator==(const ProcessId&) const = default;
};

// NotFoundError if there is no such process, or it is a zombie; another error if it cannot be inspected.
absl::StatusOr<ProcessId> Identify(pid_t pid);

// Whether a signal (SIGSTOP, SIGTSTP) or a debugger has stopped the process; false if there is no such
// process.
bool IsStopped(pid_t pid);

// Whether the process has ended or is exiting, so that a signal no longer has an effect.
bool IsDying(pid_t pid);

// Kills the process and its process group, unless its pid now belongs to another process, and waits until it
// is gone. DeadlineExceededError if that takes longer than `limit`; another error if the process cannot be
// inspected.
absl::Status KillLeftover(const ProcessId& process, absl::Duration limit);

// The kernel's id of the present boot of the machine.
absl::StatusOr<std::string> BootId();

}  // namespace tandem::worker
