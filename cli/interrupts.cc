#include "cli/interrupts.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "platform/check.h"

namespace tandem::cli {

Interrupts::Interrupts() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, &before_);
  fd_ = ::signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
  TANDEM_CHECK(fd_ >= 0, "signalfd works");
}

Interrupts::~Interrupts() {
  Count();  // takes what came last, so that restoring the mask does not deliver it
  ::close(fd_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int Interrupts::Count() {
  signalfd_siginfo info;
  while (::read(fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    ++count_;
  }
  return count_;
}

}  // namespace tandem::cli
