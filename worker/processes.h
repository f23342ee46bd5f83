#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tandem::worker {

// A process by what no other process of this boot shares: a pid alone is given again.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_time = 0;  // clock ticks after the boot
  bool operator==(const ProcessId&) const = default;
};

// NotFoundError where there is no such process (a zombie is none); another where it cannot be looked at.
absl::StatusOr<ProcessId> Identify(pid_t pid);

// Whether a signal (SIGSTOP, SIGTSTP) or a debugger holds the process; false where there is none.
bool IsStopped(pid_t pid);

// Whether the process has ended, or is about to: nothing that it is sent reaches it any more.
bool IsDying(pid_t pid);

// Kills the process and its group, if it still is that process, and waits until it is gone.
// DeadlineExceededError where it is not within `limit`; another error where it cannot be looked at.
absl::Status KillLeftover(const ProcessId& process, absl::Duration limit);

// The id of this boot of the machine.
absl::StatusOr<std::string> BootId();

}  // namespace tandem::worker
