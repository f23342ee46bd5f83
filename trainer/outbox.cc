// SPDX-License-Identifier: Apache-2.0
#include "trainer/outbox.h"

#include <utility>

#include "absl/status/status.h"

namespace tandem::trainer {

Outbox::Outbox(link::Channel& channel, size_t max_bytes)
    : channel_(channel), queue_(max_bytes), thread_([this] { Run(); }) {}

Outbox::~Outbox() {
  {
    const absl::MutexLock lock(&mu_);
    ending_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void Outbox::Push(v1::FromTrainer message) {
  const absl::MutexLock lock(&mu_);
  if (gone_) {
    return;
  }
  queue_.Push({.message = std::move(message)});
  changed_.NotifyAll();
}

bool Outbox::Flush(absl::Duration timeout) {
  const absl::MutexLock lock(&mu_);
  return changed_.AwaitFor(mu_, timeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return gone_ || (queue_.empty() && !sending_);
  });
}

void Outbox::Run() {
  while (true) {
    Entry entry;
    {
      const absl::MutexLock lock(&mu_);
      while (!ending_ && queue_.empty()) {
        changed_.Wait(mu_);
      }
      if (ending_) {
        return;
      }
      entry = queue_.PopFront();
      sending_ = true;
      if (entry.report() != nullptr && (queue_.dropped_norms() > 0 || queue_.dropped_reports() > 0)) {
        auto& scalars = *entry.report()->mutable_scalars();
        scalars["dropped_norms"] = static_cast<double>(queue_.dropped_norms());
        scalars["dropped_reports"] = static_cast<double>(queue_.dropped_reports());
      }
    }
    const absl::Status sent = channel_.Send(entry.message);
    const absl::MutexLock lock(&mu_);
    sending_ = false;
    if (!sent.ok()) {  // the thread that receives sees the end too, and ends the process
      gone_ = true;
      queue_.Clear();
    }
    changed_.NotifyAll();
  }
}

}  // namespace tandem::trainer
