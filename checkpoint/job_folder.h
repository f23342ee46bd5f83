// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "checkpoint/owner.h"
#include "platform/clock.h"
#include "platform/files.h"
#include "platform/steady_condition.h"

namespace tandem::checkpoint {

// Makes sure that a process renames nothing in its checkpoint directory after it has released the directory.
// Without it, one thread could check the owner, a second thread could release the directory in order to end
// the process, and the next job could start, before the first thread renames a folder.
//
// Thread-safe.
class Tenure {
 public:
  // Runs `action`, which checks the owner and then makes a few calls to the file system. After End, returns
  // Cancelled without running it.
  absl::Status Do(const std::function<absl::Status()>& action) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits for the action in progress. No further action begins.
  void End() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Mutex mu_;  // held while an action runs
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

// The folder checkpoint.directory, as one rank found it when its attempt started.
//
// If its file system is unmounted later, or the folder is renamed, the path leads nowhere, or to the disk
// under the mount point, and checkpoints written there would be lost. Therefore no code creates the folder
// again, and all code that writes there first checks that it is still the same folder. Each rank checks for
// itself, because the folder may disappear from one machine alone.
//
// A user may remove the folder and make it again. The new folder is then on the same mount, unlike a folder
// under an unmounted file system, so rank 0 writes a new `.owner` there and the job continues.
struct JobFolder {
  std::string path;
  platform::FolderId id;
  // The owner publishes and renames folders only through it. All copies of this struct share it.
  std::shared_ptr<Tenure> tenure = std::make_shared<Tenure>();
};

// Finds the folder at `path`, which must exist.
absl::StatusOr<JobFolder> FindJobFolder(platform::Files& files, const std::string& path);

// Checks that the path still leads to the folder, or to one that differs from it but whose owner is `self`: a
// file system that was mounted again has another device number, and a folder that was made again has another
// inode. Returns NotFound if the path does not exist, FailedPrecondition if it leads to another folder, and
// Unavailable if the folder cannot be examined now. Errors name the folder and say what to do.
absl::Status CheckJobFolder(platform::Files& files, const JobFolder& folder, const Owner& self);

// Called by rank 0 if CheckJobFolder finds another folder. If the other folder is on the same mount and holds
// nothing (HoldsNothing), makes `self` its owner, so that every rank accepts it, and makes `folder` stand for
// it. Otherwise returns FailedPrecondition, or AlreadyExists if another job has just become its owner.
absl::Status TakeFolderMadeAgain(platform::Files& files, JobFolder& folder, const Owner& self);

// Keeps the ownership that TakeOwnership gave: a thread renews it, so that the owner does not look dead
// during a long step.
class Lease {
 public:
  // `folder` is this machine's view of the directory. While its path leads elsewhere, the lease writes
  // nothing there, unless a user made the folder again. Calls `lost` at most once, on the lease's thread,
  // with a reason: another job or a later attempt owns the directory (the reason names it), or another job
  // may have owned and released it while this process or its machine was paused. `clock` measures such a
  // pause; `files` and `clock` must outlive the lease.
  Lease(platform::Files& files, JobFolder folder, Owner self,
        std::function<void(const std::string& reason)> lost, absl::Duration period = kRenewal,
        const platform::Clock& clock = platform::BootClock());

  // Stops the renewals without releasing the directory: a newcomer must first wait kPatience (owner.h).
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
  absl::Time seen_;  // when the file was last read, or found missing; used only by the thread
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
