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

// Detects what collectives on a GPU do not report to the host: a rank's process is gone (kernels that wait
// for it keep waiting), a collective has failed, or a collective has not ended within its deadline.
//
// Every `interval` the ranks exchange a byte over a separate group, whose connections break if a process
// dies, and each rank checks its pending collectives.
class Watchdog {
 public:
  // heartbeat: a host communicator over all ranks that only the watchdog uses. watched: the communicators to
  // check. Both must outlive the watchdog. lost: called at most once, on a thread of the watchdog, with the
  // exception.
  Watchdog(Communicator& heartbeat, std::vector<Communicator*> watched, absl::Duration interval,
           std::function<void(std::exception_ptr)> lost);
  ~Watchdog();  // calls Leave, and waits for calls in progress
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Tells the other ranks that this rank is done, so that all stop watching. Returns false if they do not
  // learn it within `patience`.
  bool Leave(absl::Duration patience) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void LookAfterPending();
  void Lost();  // passes the current exception to lost_, unless the other thread has
  // Waits for up to `wait`. Returns true, without waiting longer, if this rank leaves or another has left.
  bool Leaving(absl::Duration wait) ABSL_LOCKS_EXCLUDED(mu_);
  // Exchanges the byte. Returns false if a rank leaves; then there is nothing more to detect.
  bool Exchange(bool leaving);

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
