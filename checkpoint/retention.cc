// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/retention.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/folder.h"
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

}  // namespace tandem::checkpoint
