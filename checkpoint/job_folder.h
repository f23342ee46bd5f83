// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/owner.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// The folder that checkpoint.directory names, as one rank found it when its attempt started. Where its file
// system is unmounted afterwards, or the folder is renamed, the path leads nowhere, or to what lies beneath:
// another disk, on which nobody looks for checkpoints. So nothing makes the folder again, and whoever writes
// there looks first whether it is still the same. Each rank looks for itself: on another machine the folder
// has another device, and may go away alone.
struct JobFolder {
  std::string path;
  platform::FolderId id;
};

// The folder of `path`, which is there.
absl::StatusOr<JobFolder> FindJobFolder(platform::Files& files, const std::string& path);

// NotFound where nothing has the path, FailedPrecondition where another folder has it; any other error says
// that nobody knows. One that is mounted anew, and so has another device, is the same where its owner is
// still `self`. The errors name the folder and say what to do.
absl::Status CheckJobFolder(platform::Files& files, const JobFolder& folder, const Owner& self);

}  // namespace tandem::checkpoint
