// SPDX-License-Identifier: Apache-2.0
#include "trainer/outbox.h"

#include <chrono>
#include <utility>

#include "absl/status/status.h"

namespace tandem::trainer {

Outbox::Outbox(link::Channel& channel, size_t max_bytes)
    : channel_(channel), queue_(max_bytes), thread_([this] { Run(); }) {}

Outbox::~Outbox() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Outbox::Push(v1::FromTrainer message) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (gone_) {
    return;
  }
  queue_.Push({.message = std::move(message)});
  changed_.notify_all();
}

bool Outbox::Flush(absl::Duration timeout) {
  const auto sent = [this] { return gone_ || (queue_.empty() && !sending_); };
  std::unique_lock<std::mutex> lock(mu_);
  if (timeout == absl::InfiniteDuration()) {  // which wait_for would add to now, and overflow
    changed_.wait(lock, sent);
    return true;
  }
  return changed_.wait_for(lock, absl::ToChronoNanoseconds(timeout), sent);
}

void Outbox::Run() {
  std::unique_lock<std::mutex> lock(mu_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
    if (ending_) {
      return;
    }
    Entry entry = queue_.PopFront();
    sending_ = true;
    if (entry.report() != nullptr && (queue_.dropped_norms() > 0 || queue_.dropped_reports() > 0)) {
      auto& scalars = *entry.report()->mutable_scalars();
      scalars["dropped_norms"] = static_cast<double>(queue_.dropped_norms());
      scalars["dropped_reports"] = static_cast<double>(queue_.dropped_reports());
    }
    lock.unlock();
    const absl::Status sent = channel_.Send(entry.message);
    lock.lock();
    sending_ = false;
    if (!sent.ok()) {  // the thread that receives sees the end too, and ends the process
      gone_ = true;
      queue_.Clear();
    }
    changed_.notify_all();
  }
}

}  // namespace tandem::trainer
