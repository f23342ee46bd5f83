// SPDX-License-Identifier: Apache-2.0
#include "link/trainer_args.h"

#include <map>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tandem::link {

absl::StatusOr<TrainerArgs> TrainerArgs::Parse(int argc, const char* const* argv) {
  constexpr char kByHand[] = "; a trainer is started by tandem-worker, not by hand";
  std::map<absl::string_view, std::optional<int>> values = {
      {"--control-fd", {}}, {"--page-fd", {}}, {"--parent-pid", {}}};
  for (int i = 1; i < argc; i += 2) {
    const absl::string_view flag = argv[i];
    const auto found = values.find(flag);
    if (found == values.end()) {
      return absl::InvalidArgumentError(absl::StrCat("unknown argument '", flag, "'", kByHand));
    }
    if (found->second.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(flag, " is given twice"));
    }
    int value = 0;
    if (i + 1 == argc || !absl::SimpleAtoi(argv[i + 1], &value) || value < 0) {
      return absl::InvalidArgumentError(absl::StrCat(flag, " needs a number from 0"));
    }
    found->second = value;
  }
  for (const auto& [flag, value] : values) {
    if (!value.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(flag, " is missing", kByHand));
    }
  }
  return TrainerArgs{.control_fd = *values["--control-fd"],
                     .page_fd = *values["--page-fd"],
                     .parent_pid = *values["--parent-pid"]};
}

std::vector<std::string> TrainerArgs::ToArgv(const std::string& program) const {
  return {
      program,        "--control-fd",          absl::StrCat(control_fd), "--page-fd", absl::StrCat(page_fd),
      "--parent-pid", absl::StrCat(parent_pid)};
}

}  // namespace tandem::link
