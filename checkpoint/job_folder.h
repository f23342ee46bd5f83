// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/owner.h"
#include "checkpoint/tenure.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// The folder that checkpoint.directory names, as one rank found it when its attempt started. Where its file
// system is unmounted afterwards, or the folder is renamed, the path leads nowhere, or to what lies beneath:
// to another disk, where checkpoints are not looked for. So nothing makes the folder again, and whoever
// writes there looks first whether it is still the same. Each rank looks for itself: on another machine the
// folder has another device, and may go away alone.
//
// A user may remove the folder and make it again. That one is on the same mount, as what lies beneath a mount
// point never is, and rank 0 makes it the job's by its `.owner`.
struct JobFolder {
  std::string path;
  platform::FolderId id;
  // What its owner does there; the same of all copies.
  std::shared_ptr<Tenure> tenure = std::make_shared<Tenure>();
};

// The folder of `path`, which must exist.
absl::StatusOr<JobFolder> FindJobFolder(platform::Files& files, const std::string& path);

// OK where it is the folder, or one that `self` owns: a file system that is mounted anew has another device,
// and a folder that was made again another inode. NotFound where nothing has the path, FailedPrecondition
// where another folder has it; any other error: the folder cannot be looked at now. The errors name the
// folder and say what to do.
absl::Status CheckJobFolder(platform::Files& files, const JobFolder& folder, const Owner& self);

// Rank 0, where CheckJobFolder finds another folder. One that is empty and on the same mount was made in the
// place of the first, which is gone: `self` becomes its owner, which every rank sees, and `folder` is that
// one. FailedPrecondition where it is not such a folder; AlreadyExists where somebody else has just become
// its owner.
absl::Status TakeFolderMadeAgain(platform::Files& files, JobFolder& folder, const Owner& self);

}  // namespace tandem::checkpoint
