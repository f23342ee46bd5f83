// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "comm/communicator.h"
#include "platform/steady_condition.h"

namespace tandem::comm {

// Notices what collectives on a GPU do not report to the host: that a rank's process is gone (a kernel that
// waits for it goes on waiting), that one has failed, or has not ended within its deadline.
//
// One thread per rank. Every `interval` the ranks exchange a byte over a group of their own, whose
// connections break with the process at the other end, and each looks after its pending collectives.
class Watchdog {
 public:
  // heartbeat: over all ranks, on the host, used by nobody else. watched: what to look after. Both outlive
  // it. lost: called once at most, on a thread of the watchdog, with a CommError.
  Watchdog(Communicator& heartbeat, std::vector<Communicator*> watched, absl::Duration interval,
           std::function<void(std::exception_ptr)> lost);
  ~Watchdog();  // leaves, and waits for calls in progress
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // This rank is done: the others stop watching. False where they have not heard within `patience`.
  bool Leave(absl::Duration patience) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void LookAfterPending();
  void Lost();  // reports the current exception, unless the other thread has reported one
  // Waits; true where this rank leaves, or another has left.
  bool Leaving(absl::Duration wait) ABSL_LOCKS_EXCLUDED(mu_);
  // False: a rank has left, and so nothing more is to be noticed.
  bool Exchange(bool leaving, const at::Tensor& mine, at::Tensor& all);

  Communicator& heartbeat_;
  const std::vector<Communicator*> watched_;
  const absl::Duration interval_;
  const std::function<void(std::exception_ptr)> lost_;
  absl::Mutex mu_;
  platform::SteadyCondition changed_;
  bool leaving_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::atomic<bool> reported_{false};
  std::thread pending_thread_;
  std::thread thread_;
};

}  // namespace tandem::comm
