// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "link/bounded_reports.h"
#include "link/channel.h"
#include "platform/steady_condition.h"
#include "tandem/v1/trainer.pb.h"

namespace tandem::trainer {

// Sends the messages of a trainer to its daemon in order, except the rendezvous. Messages wait in a queue for
// a thread that sends them, so the trainer never waits for the daemon. If the queue had to drop norms or
// reports (link/bounded_reports.h), the next report has their numbers as the scalars "dropped_norms" and
// "dropped_reports". Thread-safe.
class Outbox {
 public:
  static constexpr size_t kMaxBytes = size_t{64} << 20;

  explicit Outbox(link::Channel& channel, size_t max_bytes = kMaxBytes);  // `channel` must outlive it
  ~Outbox() ABSL_LOCKS_EXCLUDED(mu_);                                     // drops what has not been sent
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  void Push(v1::FromTrainer message) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until everything pushed before has been sent, or the daemon is gone. Returns false at the deadline.
  bool Flush(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Entry {
    v1::FromTrainer message;
    size_t bytes = 0;

    v1::StepReport* report() { return message.has_report() ? message.mutable_report() : nullptr; }
  };

  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  link::Channel& channel_;
  absl::Mutex mu_;
  platform::SteadyCondition changed_;
  link::BoundedReports<Entry> queue_ ABSL_GUARDED_BY(mu_);
  bool sending_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  bool gone_ ABSL_GUARDED_BY(mu_) = false;  // whether the daemon is gone
  std::thread thread_;
};

}  // namespace tandem::trainer
