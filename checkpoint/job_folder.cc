// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/job_folder.h"

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {

absl::StatusOr<JobFolder> FindJobFolder(platform::Files& files, const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const platform::FolderId id, files.IdOfFolder(path));
  return JobFolder{.path = path, .id = id};
}

absl::Status CheckJobFolder(platform::Files& files, const JobFolder& folder, const Owner& self) {
  const absl::StatusOr<platform::FolderId> now = files.IdOfFolder(folder.path);
  if (now.ok() && *now == folder.id) {
    return absl::OkStatus();
  }
  const std::string name = absl::StrCat("checkpoint.directory ", folder.path);
  if (absl::IsNotFound(now.status())) {
    return absl::NotFoundError(
        absl::StrCat(name,
                     " is no longer there (its file system was unmounted, or the folder was renamed or "
                     "removed), so nothing is written; bring it back before the next save"));
  }
  if (!now.ok()) {
    return absl::UnavailableError(absl::StrCat(name, " cannot be reached (", now.status().message(),
                                               "), so nothing is written; the next save tries again"));
  }
  const absl::StatusOr<Owner> owner = ReadOwner(files, folder.path);
  if (owner.ok() && owner->job == self.job && owner->attempt == self.attempt) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(name,
                   " is another folder than at the start of the attempt (a file system was mounted or "
                   "unmounted there, or the folder was replaced), so nothing is written; bring the first one "
                   "back before the next save"));
}

}  // namespace tandem::checkpoint
