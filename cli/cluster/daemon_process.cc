// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster/daemon_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "cli/terminal/display_text.h"
#include "platform/clock.h"
#include "platform/files.h"
#include "platform/regular_file.h"
#include "platform/signal_name.h"
#include "platform/system_error.h"

namespace tandem::cli {
namespace {

constexpr int64_t kTailBytes = 64 << 10;

// Runs between fork and exec, where only system calls are allowed.
[[noreturn]] void Exec(char* const* arguments, int log, int error_pipe, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) {
    ::_exit(127);  // the parent died before the call above
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);  // ignored signals stay ignored over exec
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0) {
    ::dup2(null, STDIN_FILENO);
  }
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::execv(arguments[0], arguments);
  const int error = errno;
  const ssize_t written = ::write(error_pipe, &error, sizeof(error));
  ::_exit(written < 0 ? 126 : 127);
}

}  // namespace

absl::StatusOr<DaemonProcess> DaemonProcess::Start(Command command) {
  const auto failed = [&](absl::string_view what, int error) {
    return absl::FailedPreconditionError(
        platform::SystemError(error, absl::StrCat("cannot start ", command.name, ": ", what)).message());
  };
  if (::access(command.program.c_str(), X_OK) != 0) {
    const int error = errno;
    return absl::FailedPreconditionError(absl::StrCat("cannot start ", command.name, ": ",
                                                      Escape(command.program), ": ", std::strerror(error),
                                                      "; name the folder that has it with --bin-dir"));
  }
  const absl::StatusOr<platform::Descriptor> log =
      platform::OpenRegularFile(command.log, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (!log.ok()) {
    const absl::string_view remedy = platform::RemedyOf(log.status());
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot start ", command.name, ": ", log.status().message(), remedy.empty() ? "" : "; ", remedy));
  }
  const int64_t log_start = platform::SystemFiles().Size(command.log).value_or(0);
  int error_pipe[2];
  if (::pipe2(error_pipe, O_CLOEXEC) != 0) {
    return failed("pipe", errno);
  }
  std::vector<char*> arguments = {command.program.data()};
  for (std::string& argument : command.arguments) {
    arguments.push_back(argument.data());
  }
  arguments.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    Exec(arguments.data(), log->get(), error_pipe[1], parent);
  }
  const int fork_error = errno;
  ::close(error_pipe[1]);
  int exec_error = 0;
  const bool exec_failed = pid > 0 && ::read(error_pipe[0], &exec_error, sizeof(exec_error)) ==
                                          static_cast<ssize_t>(sizeof(exec_error));
  ::close(error_pipe[0]);
  if (pid < 0) {
    return failed("fork", fork_error);
  }
  if (exec_failed) {
    ::waitpid(pid, nullptr, 0);
    return failed(Escape(command.program), exec_error);
  }
  return DaemonProcess(std::move(command), pid, log_start);
}

DaemonProcess::DaemonProcess(DaemonProcess&& other) noexcept
    : command_(std::move(other.command_)),
      pid_(std::exchange(other.pid_, -1)),
      log_start_(other.log_start_),
      ended_(other.ended_),
      wait_status_(other.wait_status_) {}

DaemonProcess::~DaemonProcess() {
  if (pid_ > 0 && Running()) {
    Signal(SIGKILL);
    ::waitpid(pid_, &wait_status_, 0);
  }
}

bool DaemonProcess::Running() {
  if (!ended_ && ::waitpid(pid_, &wait_status_, WNOHANG) != 0) {
    ended_ = true;
  }
  return !ended_;
}

std::string DaemonProcess::EndText() const {
  if (WIFSIGNALED(wait_status_)) {
    const int signal = WTERMSIG(wait_status_);
    return absl::StrCat(command_.name, " was killed by signal ", signal, " (", platform::SignalName(signal),
                        ")");
  }
  return absl::StrCat(command_.name, " ended with exit code ", WEXITSTATUS(wait_status_));
}

std::string DaemonProcess::LogTail(int lines) const {
  platform::Files& files = platform::SystemFiles();
  const int64_t begin = std::max(log_start_, files.Size(command_.log).value_or(0) - kTailBytes);
  const std::string text = files.ReadRange(command_.log, begin, kTailBytes).value_or("");
  const std::vector<std::string> all = absl::StrSplit(text, '\n', absl::SkipEmpty());
  std::string tail;
  for (size_t i = all.size() > static_cast<size_t>(lines) ? all.size() - lines : 0; i < all.size(); ++i) {
    absl::StrAppend(&tail, "  ", ReadableLogLine(all[i]), "\n");
  }
  return tail;
}

void DaemonProcess::Signal(int signal) {
  if (Running()) {
    ::kill(-pid_, signal);
  }
}

bool DaemonProcess::WaitEnd(absl::Duration timeout) {
  const absl::Time until = platform::SteadyClock().Now() + timeout;
  while (Running()) {
    if (platform::SteadyClock().Now() >= until) {
      return false;
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

}  // namespace tandem::cli
