// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/whole_steps.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/folder.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {

absl::StatusOr<WholeSteps> FindWholeSteps(platform::Files& files, const std::string& directory) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListSteps(files, directory));
  WholeSteps whole;
  for (const int64_t step : steps) {
    if (ReadFolder(files, absl::StrCat(directory, "/", StepName(step))).ok()) {
      whole.insert(step);
    }
  }
  return whole;
}

}  // namespace tandem::checkpoint
