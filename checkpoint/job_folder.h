// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "checkpoint/owner.h"
#include "platform/files.h"

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

}  // namespace tandem::checkpoint
