// SPDX-License-Identifier: Apache-2.0
#include "worker/processes.h"

#include <signal.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "platform/clock.h"
#include "platform/files.h"
#include "platform/status_macros.h"

namespace tandem::worker {
namespace {

constexpr size_t kState = 0;
constexpr size_t kFlags = 6;
constexpr size_t kStartTime = 19;
constexpr uint64_t kExiting = 0x4;  // PF_EXITING of the kernel: it tears down its memory, which may take long

// Returns the fields of /proc/PID/stat after the name, "S ppid ...": the state is field 3, the start time
// field 22.
absl::StatusOr<std::vector<std::string>> ReadStat(pid_t pid) {
  const absl::StatusOr<std::string> stat = platform::SystemFiles().Read(absl::StrCat("/proc/", pid, "/stat"));
  if (!stat.ok()) {
    return stat.status();  // ENOENT and ESRCH are NotFound
  }
  const size_t name_end = stat->rfind(')');  // "123 (name with ) or spaces) S ppid ..."
  std::vector<std::string> fields;
  if (name_end != std::string::npos) {
    fields = absl::StrSplit(stat->substr(name_end + 1), ' ', absl::SkipEmpty());
  }
  if (fields.size() <= kStartTime) {
    return absl::NotFoundError(absl::StrCat("process ", pid, " is gone"));
  }
  return fields;
}

bool HasEnded(const std::vector<std::string>& fields) {
  return fields[kState] == "Z" || fields[kState] == "X";
}

}  // namespace

absl::StatusOr<ProcessId> Identify(pid_t pid) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> fields, ReadStat(pid));
  ProcessId process{.pid = pid};
  if (HasEnded(fields) || !absl::SimpleAtoi(fields[kStartTime], &process.start_time)) {
    return absl::NotFoundError(absl::StrCat("process ", pid, " is gone"));
  }
  return process;
}

bool IsDying(pid_t pid) {
  const absl::StatusOr<std::vector<std::string>> fields = ReadStat(pid);
  if (absl::IsNotFound(fields.status())) {
    return true;
  }
  uint64_t flags = 0;
  return fields.ok() &&
         (HasEnded(*fields) || (absl::SimpleAtoi((*fields)[kFlags], &flags) && (flags & kExiting) != 0));
}

bool IsStopped(pid_t pid) {
  const absl::StatusOr<std::vector<std::string>> fields = ReadStat(pid);
  return fields.ok() && ((*fields)[kState] == "T" || (*fields)[kState] == "t");
}

absl::Status KillLeftover(const ProcessId& process, absl::Duration limit) {
  const absl::Time deadline = platform::SteadyClock().Now() + limit;
  while (true) {
    const absl::StatusOr<ProcessId> now = Identify(process.pid);
    if (absl::IsNotFound(now.status())) {
      return absl::OkStatus();
    }
    if (!now.ok()) {
      return now.status();  // out of descriptors, so it may still run
    }
    if (!(*now == process)) {
      return absl::OkStatus();
    }
    if (getpgid(process.pid) == process.pid) {
      kill(-process.pid, SIGKILL);
    }
    kill(process.pid, SIGKILL);
    if (platform::SteadyClock().Now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("process ", process.pid,
                       " of an earlier tandem-worker does not die; look at what it waits for in /proc/",
                       process.pid, "/stack, or restart the machine"));
    }
    absl::SleepFor(absl::Milliseconds(5));  // not our child, so it cannot be waited for
  }
}

absl::StatusOr<std::string> BootId() {
  absl::StatusOr<std::string> id = platform::SystemFiles().Read("/proc/sys/kernel/random/boot_id");
  if (id.ok()) {
    absl::StripTrailingAsciiWhitespace(&*id);
  }
  return id;
}

}  // namespace tandem::worker
