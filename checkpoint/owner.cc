#include "checkpoint/owner.h"

#include "absl/strings/str_cat.h"

namespace tandem::checkpoint {
namespace {

std::string PathIn(const std::string& directory) { return directory + "/.owner"; }

}  // namespace

absl::Status TakeOwnership(platform::Files& files, const std::string& directory, const std::string& job) {
  if (absl::Status status = files.CreateFolders(directory); !status.ok()) return status;
  return platform::ReplaceFile(files, PathIn(directory), job);
}

absl::Status CheckOwner(platform::Files& files, const std::string& directory, const std::string& job) {
  const absl::StatusOr<std::string> owner = files.Read(PathIn(directory));
  if (absl::IsNotFound(owner.status())) return absl::OkStatus();
  if (!owner.ok()) return owner.status();
  if (*owner == job) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint.directory ", directory, " belongs to job ", *owner, " since that started; job ", job,
      " cannot save there any more: give every job a directory of its own"));
}

}  // namespace tandem::checkpoint
