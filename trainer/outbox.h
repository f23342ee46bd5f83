// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

#include "absl/time/time.h"
#include "link/channel.h"
#include "tandem/v1/trainer.pb.h"

namespace tandem::trainer {

// What a trainer sends to its daemon besides the rendezvous, in order, without ever waiting for the daemon: a
// queue and a thread that sends. Reports beyond `max_bytes` are dropped, norms first and oldest first, then
// whole reports; both are counted, and the counts go with the next report as the scalars "dropped_norms" and
// "dropped_reports". Other messages are never dropped. Thread-safe.
class Outbox {
 public:
  static constexpr int64_t kMaxBytes = int64_t{64} << 20;

  explicit Outbox(link::Channel& channel, int64_t max_bytes = kMaxBytes);  // `channel` outlives it
  ~Outbox();                                                               // drops what is not sent
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  void Push(v1::FromTrainer message);

  // Waits until everything pushed before has been sent or the daemon is gone; false at the deadline.
  bool Flush(absl::Duration timeout);

 private:
  struct Entry {
    v1::FromTrainer message;
    int64_t bytes = 0;
  };

  void Run();
  void MakeRoom();

  link::Channel& channel_;
  const int64_t max_bytes_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Entry> queue_;
  int64_t bytes_ = 0;  // of the reports in the queue
  int64_t dropped_norms_ = 0;
  int64_t dropped_reports_ = 0;
  bool sending_ = false;
  bool ending_ = false;
  bool gone_ = false;  // the daemon
  std::thread thread_;
};

}  // namespace tandem::trainer
