// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/job_folder.h"

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {

absl::Status Tenure::Do(const std::function<absl::Status()>& deed) {
  const absl::MutexLock lock(&mu_);
  return ended_ ? absl::CancelledError("this process ends, and has given the checkpoint directory back")
                : deed();
}

void Tenure::End() {
  const absl::MutexLock lock(&mu_);
  ended_ = true;
}

namespace {

std::string Named(const JobFolder& folder) { return absl::StrCat("checkpoint.directory ", folder.path); }

absl::Status CannotBeLookedAt(const JobFolder& folder, const absl::Status& error) {
  return absl::UnavailableError(absl::StrCat(Named(folder), " cannot be reached (", error.message(),
                                             "), so nothing is written; the next save tries again"));
}

}  // namespace

absl::StatusOr<JobFolder> FindJobFolder(platform::Files& files, const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const platform::FolderId id, files.IdOfFolder(path));
  return JobFolder{.path = path, .id = id};
}

absl::Status CheckJobFolder(platform::Files& files, const JobFolder& folder, const Owner& self) {
  const absl::StatusOr<platform::FolderId> now = files.IdOfFolder(folder.path);
  if (now.ok() && *now == folder.id) {
    return absl::OkStatus();
  }
  if (absl::IsNotFound(now.status())) {
    return absl::NotFoundError(absl::StrCat(
        Named(folder),
        " is no longer there (its file system was unmounted, or the folder was renamed or removed), so "
        "nothing is written; bring it back before the next save, or make it anew where it was removed"));
  }
  if (!now.ok()) {
    return CannotBeLookedAt(folder, now.status());
  }
  const absl::StatusOr<Owner> owner = ReadOwner(files, folder.path);
  if (owner.ok() && owner->job == self.job && owner->attempt == self.attempt) {
    return absl::OkStatus();
  }
  if (!owner.ok() && !absl::IsNotFound(owner.status())) {
    return CannotBeLookedAt(folder, owner.status());
  }
  return absl::FailedPreconditionError(absl::StrCat(
      Named(folder), " is another folder than at the start of the attempt (a file system was mounted or ",
      "unmounted there, or the folder was replaced)",
      owner.ok() ? absl::StrCat(" and belongs to ", ToText(*owner)) : "",
      ", so nothing is written; bring the first one back before the next save, or, if it is gone, leave an "
      "empty one there, on the same file system"));
}

absl::Status TakeFolderMadeAgain(platform::Files& files, JobFolder& folder, const Owner& self) {
  TANDEM_ASSIGN_OR_RETURN(const platform::FolderId now, files.IdOfFolder(folder.path));
  if (now.device != folder.id.device || now.mount != folder.id.mount) {
    return absl::FailedPreconditionError(absl::StrCat(Named(folder), " is on another mount"));
  }
  TANDEM_ASSIGN_OR_RETURN(const bool empty, HoldsNothing(files, folder.path));
  if (!empty) {
    return absl::FailedPreconditionError(absl::StrCat(Named(folder), " is not empty"));
  }
  TANDEM_RETURN_IF_ERROR(PublishOwner(files, folder.path, self));
  folder.id = now;
  return absl::OkStatus();
}

}  // namespace tandem::checkpoint
