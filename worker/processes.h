// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tandem::worker {

// Identifies a process among all of this boot: a pid alone is used again.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_time = 0;  // clock ticks after the boot
  bool operator==(const ProcessId&) const = default;
};

// NotFoundError if there is no such process (a zombie is not one); another error if it cannot be inspected.
absl::StatusOr<ProcessId> Identify(pid_t pid);

// Whether a signal (SIGSTOP, SIGTSTP) or a debugger has stopped the process; false if there is no such
// process.
bool IsStopped(pid_t pid);

// Whether the process has ended, or is about to: nothing that it is sent reaches it any more.
bool IsDying(pid_t pid);

// Kills the process and its group, if it still is that process, and waits until it is gone.
// DeadlineExceededError if that takes longer than `limit`; another error if the process cannot be inspected.
absl::Status KillLeftover(const ProcessId& process, absl::Duration limit);

// The id of this boot of the machine.
absl::StatusOr<std::string> BootId();

}  // namespace tandem::worker
