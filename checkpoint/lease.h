// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "checkpoint/job_folder.h"
#include "checkpoint/owner.h"
#include "platform/clock.h"
#include "platform/files.h"
#include "platform/steady_condition.h"

namespace tandem::checkpoint {

// Keeps a directory whose ownership TakeOwnership has given: renews it on its own thread, so that the owner
// does not look dead during a long step.
class Lease {
 public:
  // `folder` is as this machine sees it. While its path leads elsewhere, nothing is written there, unless it
  // was made again (job_folder.h). Calls `lost` once, on the lease's thread and with the reason (which names
  // both jobs), if another owner has the directory, or may have had it and released it while this process or
  // its machine was paused. `files` and `clock`, which measures such a pause, outlive the lease.
  Lease(platform::Files& files, JobFolder folder, Owner self,
        std::function<void(const std::string& reason)> lost, absl::Duration period = kRenewal,
        const platform::Clock& clock = platform::BootClock());

  // Stops the renewals. The directory stays this owner's until a newcomer finds the file unchanged.
  ~Lease() ABSL_LOCKS_EXCLUDED(mu_);
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // Stops the renewals, ends the folder's tenure and releases the directory. A failure is logged; the next
  // job then waits kPatience.
  void Release() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Renew();
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  platform::Files& files_;
  JobFolder folder_;  // used only by the thread, except for its path
  const Owner self_;
  const std::function<void(const std::string&)> lost_;
  const absl::Duration period_;
  const platform::Clock& clock_;
  absl::Mutex mu_;
  platform::SteadyCondition stopped_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time seen_;  // when the owner was last read, or seen to be absent; used only by the thread
  std::thread thread_;
};

// The lease of a job, once it has one. Thread-safe, because the thread that ends the process may release the
// directory.
class HeldLease {
 public:
  void Hold(std::unique_ptr<Lease> lease) ABSL_LOCKS_EXCLUDED(mu_);

  // Calls Lease::Release once; a second caller returns when the first call has. Does nothing if there is no
  // lease.
  void Release() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Mutex mu_;
  std::unique_ptr<Lease> lease_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::checkpoint
