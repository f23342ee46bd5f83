// SPDX-License-Identifier: Apache-2.0
#include "trainer/outbox.h"

#include <chrono>
#include <utility>

#include "absl/status/status.h"

namespace tandem::trainer {

Outbox::Outbox(link::Channel& channel, int64_t max_bytes)
    : channel_(channel), max_bytes_(max_bytes), thread_([this] { Run(); }) {}

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
  const int64_t bytes = message.has_report() ? static_cast<int64_t>(message.ByteSizeLong()) : 0;
  queue_.push_back({.message = std::move(message), .bytes = bytes});
  bytes_ += bytes;
  MakeRoom();
  changed_.notify_all();
}

// Requires mu_.
void Outbox::MakeRoom() {
  for (auto entry = queue_.begin(); entry != queue_.end() && bytes_ > max_bytes_; ++entry) {
    if (entry->message.has_report() && entry->message.report().has_norms()) {
      entry->message.mutable_report()->clear_norms();
      const auto bytes = static_cast<int64_t>(entry->message.ByteSizeLong());
      bytes_ -= entry->bytes - bytes;
      entry->bytes = bytes;
      ++dropped_norms_;
    }
  }
  for (auto entry = queue_.begin(); entry != queue_.end() && bytes_ > max_bytes_;) {
    if (entry->message.has_report()) {
      bytes_ -= entry->bytes;
      entry = queue_.erase(entry);
      ++dropped_reports_;
    } else {
      ++entry;
    }
  }
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
    Entry entry = std::move(queue_.front());
    queue_.pop_front();
    bytes_ -= entry.bytes;
    sending_ = true;
    if (entry.message.has_report() && (dropped_norms_ > 0 || dropped_reports_ > 0)) {
      auto& scalars = *entry.message.mutable_report()->mutable_scalars();
      scalars["dropped_norms"] = static_cast<double>(dropped_norms_);
      scalars["dropped_reports"] = static_cast<double>(dropped_reports_);
    }
    lock.unlock();
    const absl::Status sent = channel_.Send(entry.message);
    lock.lock();
    sending_ = false;
    if (!sent.ok()) {  // the thread that receives sees the end too, and ends the process
      gone_ = true;
      queue_.clear();
      bytes_ = 0;
    }
    changed_.notify_all();
  }
}

}  // namespace tandem::trainer
