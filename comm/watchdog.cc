// SPDX-License-Identifier: Apache-2.0
#include "comm/watchdog.h"

#include <string>
#include <utility>

namespace tandem::comm {

Watchdog::Watchdog(Communicator& heartbeat, std::vector<Communicator*> watched, absl::Duration interval,
                   std::function<void(std::exception_ptr)> lost)
    : heartbeat_(heartbeat),
      watched_(std::move(watched)),
      interval_(interval),
      lost_(std::move(lost)),
      pending_thread_([this] { LookAfterPending(); }),
      thread_([this] { Run(); }) {}

Watchdog::~Watchdog() {
  Leave(absl::ZeroDuration());
  thread_.join();
  pending_thread_.join();
}

bool Watchdog::Leave(absl::Duration patience) {
  const absl::MutexLock lock(&mu_);
  leaving_ = true;
  changed_.NotifyAll();
  return changed_.AwaitFor(mu_, patience, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return ended_; });
}

bool Watchdog::Leaving(absl::Duration wait) {
  const absl::MutexLock lock(&mu_);
  return changed_.AwaitFor(mu_, wait,
                           [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return leaving_ || ended_; });
}

void Watchdog::Run() {
  bool leaving = false;
  try {
    do {
      leaving = Leaving(interval_);
    } while (Exchange(leaving));
  } catch (...) {
    if (!leaving) {
      Lost();
    }
  }
  const absl::MutexLock lock(&mu_);
  ended_ = true;
  changed_.NotifyAll();
}

void Watchdog::LookAfterPending() {
  try {
    while (!Leaving(interval_ / 10)) {
      // Checks all communicators, also after the first that fails: which collective is reported as the
      // oldest that has not ended depends on what all of them have seen end.
      std::exception_ptr first;
      for (Communicator* communicator : watched_) {
        try {
          communicator->CheckPending();
        } catch (...) {
          if (!first) {
            first = std::current_exception();
          }
        }
      }
      if (first) {
        std::rethrow_exception(first);
      }
    }
  } catch (...) {
    Lost();
  }
}

void Watchdog::Lost() {
  if (!reported_.exchange(true)) {
    lost_(std::current_exception());
  }
}

bool Watchdog::Exchange(bool leaving) {
  constexpr char kLeaves = 1;
  std::string mine(1, leaving ? kLeaves : 0);
  std::string all(static_cast<size_t>(heartbeat_.size()), 0);
  heartbeat_.AllGather(device::MemoryOf(mine), device::MemoryOf(all));
  return all.find(kLeaves) == std::string::npos;
}

}  // namespace tandem::comm
