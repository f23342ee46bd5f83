// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/retention.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/folder.h"
#include "checkpoint/job_folder.h"
#include "checkpoint/saved_step.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {

absl::StatusOr<std::vector<std::string>> SetAsideTemporaries(platform::Files& files,
                                                             const std::string& directory,
                                                             const Owner& self) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(directory));
  std::vector<std::string> doomed;
  for (const std::string& name : names) {
    const std::optional<TemporaryFolder> folder = ParseTemporaryName(name);
    if (!folder.has_value() || (folder->job == self.job && folder->attempt > self.attempt)) {
      continue;
    }
    std::string path = absl::StrCat(directory, "/", name);
    if (!name.ends_with(kGone) && files.Rename(path, absl::StrCat(path, kGone)).ok()) {
      absl::StrAppend(&path, kGone);
    }
    doomed.push_back(std::move(path));
  }
  return doomed;
}

absl::StatusOr<std::string> SetAsideStep(platform::Files& files, const std::string& directory, int64_t step,
                                         const Owner& self) {
  std::string gone = absl::StrCat(directory, "/", TemporaryName(step, self), kGone);
  TANDEM_RETURN_IF_ERROR(files.Rename(absl::StrCat(directory, "/", StepName(step)), gone));
  return gone;
}

absl::Status SetAsideOlder(platform::Files& files, const std::string& directory, int keep, int64_t current,
                           const Owner& self, WholeSteps& whole, std::vector<int64_t>& removed,
                           std::vector<std::string>& doomed) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListSteps(files, directory));
  int kept = 1;  // `current`
  for (const int64_t step : steps) {
    if (step >= current || !whole.contains(step)) {
      continue;
    }
    if (kept < keep) {
      ++kept;
      continue;
    }
    TANDEM_ASSIGN_OR_RETURN(std::string gone, SetAsideStep(files, directory, step, self));
    whole.erase(step);
    removed.push_back(step);
    doomed.push_back(std::move(gone));
  }
  return absl::OkStatus();
}

namespace {

bool Verifies(platform::Files& files, const std::string& directory, int64_t step) {
  const absl::StatusOr<SavedStep> opened =
      SavedStep::Open(files, absl::StrCat(directory, "/", StepName(step)));
  return opened.ok() && opened->Verify().ok();
}

absl::Status CheckNotTheLast(platform::Files& files, const std::string& directory, int64_t step) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListSteps(files, directory));
  const bool another = std::any_of(steps.begin(), steps.end(), [&](int64_t other) {
    return other != step && Verifies(files, directory, other);
  });
  return another || !Verifies(files, directory, step)
             ? absl::OkStatus()
             : absl::FailedPreconditionError(
                   "it is the last one that verifies: --all deletes it nevertheless");
}

}  // namespace

absl::Status DeleteStep(platform::Files& files, const std::string& directory, int64_t step, const Owner& self,
                        bool even_last, const std::function<void()>& pause) {
  TANDEM_ASSIGN_OR_RETURN(const JobFolder folder, FindJobFolder(files, directory));
  TANDEM_ASSIGN_OR_RETURN(std::vector<std::string> doomed, TakeOwnership(files, directory, self, pause));
  Lease lease(files, folder, self, [](const std::string&) {});  // a lost lease is found by CheckOwner
  const auto remove = [&]() -> absl::Status {
    if (!even_last) {
      TANDEM_RETURN_IF_ERROR(CheckNotTheLast(files, directory, step));
    }
    TANDEM_RETURN_IF_ERROR(CheckOwner(files, directory, self));
    TANDEM_ASSIGN_OR_RETURN(doomed.emplace_back(), SetAsideStep(files, directory, step, self));
    TANDEM_RETURN_IF_ERROR(files.SyncFolder(directory));
    for (const std::string& each : doomed) {
      TANDEM_RETURN_IF_ERROR(files.RemoveAll(each));
    }
    return absl::OkStatus();
  };
  const absl::Status removed = remove();
  lease.Release();
  return removed;
}

}  // namespace tandem::checkpoint
