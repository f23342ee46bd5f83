// SPDX-License-Identifier: Apache-2.0
#include "platform/program_start.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "platform/regular_file.h"

namespace tandem::platform {

absl::Status OpenClosedStandardDescriptors(ClosedDescriptor becomes) {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // A descriptor that exec closes was opened by a library ahead of main, so it was closed before: gRPC
    // 1.51 opens an eventfd, and keeps it even if that is 0.
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) {
      continue;
    }
    const int wrong_way_round = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    const int null = open("/dev/null", becomes == ClosedDescriptor::kSilent ? O_RDWR : wrong_way_round);
    if (null < 0 || (null != fd && dup2(null, fd) < 0)) {
      return FileError(errno, "open", "/dev/null");
    }
    if (null != fd) {
      close(null);
    }
  }
  return absl::OkStatus();
}

sigset_t BlockEndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
    sigaddset(&signals, SIGHUP);
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

std::string BesideThisProgram(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? name : (self.parent_path() / name).string();
}

}  // namespace tandem::platform
