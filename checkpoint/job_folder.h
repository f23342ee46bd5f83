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

// Serializes what a process does as owner of its checkpoint directory with the end of its ownership. The
// thread that ends a process releases the directory while another may be between its check of the owner and a
// rename. The next job then starts at once and must not see that rename.
//
// Thread-safe.
class Tenure {
 public:
  // Runs `deed`, which checks the owner and then makes a few calls to the file system. After End, returns
  // Cancelled without running it.
  absl::Status Do(const std::function<absl::Status()>& deed) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits for the deed in progress. No other begins after it.
  void End() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Mutex mu_;  // held while a deed runs
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

// The folder that checkpoint.directory names, as one rank found it when its attempt started.
//
// If its file system is unmounted later, or the folder is renamed, the path leads nowhere, or to another disk
// below the mount point, where checkpoints are not looked for. Therefore no code makes the folder again, and
// all code that writes there first checks that it is still the same folder. Each rank checks for itself,
// because on another machine the folder has another device and may disappear alone.
//
// A user may remove the folder and make it again. The new folder is on the same mount, which what lies below
// a mount point never is. Rank 0 then makes it the job's with a new `.owner`.
struct JobFolder {
  std::string path;
  platform::FolderId id;
  // What the owner does in the folder. All copies share it.
  std::shared_ptr<Tenure> tenure = std::make_shared<Tenure>();
};

// Finds the folder at `path`, which must exist.
absl::StatusOr<JobFolder> FindJobFolder(platform::Files& files, const std::string& path);

// Checks that the path still leads to the folder, or to one that `self` owns: a file system that is mounted
// again has another device, and a folder that was made again another inode. Returns NotFound if nothing has
// the path, FailedPrecondition if another folder has it, and any other error if the folder cannot be examined
// now. Errors name the folder and say what to do.
absl::Status CheckJobFolder(platform::Files& files, const JobFolder& folder, const Owner& self);

// For rank 0, if CheckJobFolder finds another folder. If that is empty and on the same mount, it was made in
// place of the first folder, which is gone: `self` becomes its owner, which every rank can see, and `folder`
// becomes the new one. Returns FailedPrecondition if it is not such a folder, and AlreadyExists if another
// job has just become its owner.
absl::Status TakeFolderMadeAgain(platform::Files& files, JobFolder& folder, const Owner& self);

// Keeps a directory whose ownership TakeOwnership has given: renews it on its own thread, so that the owner
// does not look dead during a long step.
class Lease {
 public:
  // `folder` is as this machine sees it. While its path leads elsewhere, nothing is written there, unless it
  // was made again. Calls `lost` once, on the lease's thread and with the reason (which names
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
