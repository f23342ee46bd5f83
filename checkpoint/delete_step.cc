// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/delete_step.h"

#include <algorithm>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/folder.h"
#include "checkpoint/job_folder.h"
#include "checkpoint/lease.h"
#include "checkpoint/retention.h"
#include "checkpoint/saved_step.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
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
  Lease lease(files, folder, self, [](const std::string&) {});  // CheckOwner finds that it is lost
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
