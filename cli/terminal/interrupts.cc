// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/interrupts.h"

#include <atomic>

namespace tandem::cli {
namespace {

constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};

constexpr int kDeadly = 3;  // the first asks, the second insists

std::atomic<int> received{0};
std::atomic<int> survived{0};  // how many came before the newest Interrupts was made
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may touch nothing else");

void Receive(int signal) {
  if (received.fetch_add(1, std::memory_order_relaxed) + 1 - survived.load(std::memory_order_relaxed) >=
      kDeadly) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);  // once this handler returns
  }
}

}  // namespace

Interrupts::Interrupts() : first_(received.load()) {
  survived = first_;
  struct sigaction count = {};
  count.sa_handler = Receive;
  count.sa_flags = SA_RESTART;  // no call on any thread has to expect EINTR
  sigemptyset(&count.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) {
      ::sigaction(kSignals[i], &count, nullptr);
    }
  }
}

Interrupts::~Interrupts() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &before_[i], nullptr);
  }
}

int Interrupts::Count() const { return received.load(std::memory_order_relaxed) - first_; }

}  // namespace tandem::cli
