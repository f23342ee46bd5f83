// SPDX-License-Identifier: Apache-2.0
#include "link/trainer_args.h"

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tandem::link {

absl::StatusOr<TrainerArgs> TrainerArgs::Parse(int argc, const char* const* argv) {
  std::optional<int> control_fd;
  std::optional<int> page_fd;
  std::optional<int> parent_pid;
  for (int i = 1; i < argc; i += 2) {
    const absl::string_view flag = argv[i];
    std::optional<int>* const target = flag == "--control-fd"   ? &control_fd
                                       : flag == "--page-fd"    ? &page_fd
                                       : flag == "--parent-pid" ? &parent_pid
                                                                : nullptr;
    if (target == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown argument '", flag, "'; a trainer is started by tandem-worker, not by hand"));
    }
    if (target->has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(flag, " is given twice"));
    }
    int value = 0;
    if (i + 1 == argc || !absl::SimpleAtoi(argv[i + 1], &value) || value < 0) {
      return absl::InvalidArgumentError(absl::StrCat(flag, " needs a number from 0"));
    }
    *target = value;
  }
  const auto missing = [](absl::string_view flag) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " is missing; a trainer is started by tandem-worker, not by hand"));
  };
  if (!control_fd) {
    return missing("--control-fd");
  }
  if (!page_fd) {
    return missing("--page-fd");
  }
  if (!parent_pid) {
    return missing("--parent-pid");
  }
  return TrainerArgs{.control_fd = *control_fd, .page_fd = *page_fd, .parent_pid = *parent_pid};
}

std::vector<std::string> TrainerArgs::ToArgv(const std::string& program) const {
  return {
      program,        "--control-fd",          absl::StrCat(control_fd), "--page-fd", absl::StrCat(page_fd),
      "--parent-pid", absl::StrCat(parent_pid)};
}

}  // namespace tandem::link
