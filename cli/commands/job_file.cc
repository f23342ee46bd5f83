// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/job_file.h"

#include <glob.h>

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/commands/job_setting.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "jobspec/jobspec.h"

namespace tandem::cli {
namespace {

bool ExistsHere(const std::string& pattern) {
  glob_t found = {};
  const bool exists = ::glob(pattern.c_str(), 0, nullptr, &found) == 0;
  ::globfree(&found);
  return exists;
}

// Whether the command line says the value at this path, or a part of it.
bool IsSet(const std::string& path, const std::vector<std::string>& set_paths) {
  return std::any_of(set_paths.begin(), set_paths.end(), [&](const std::string& set) {
    return path == set || absl::StartsWith(path, set + ".") || absl::StartsWith(path, set + "[");
  });
}

// What is wrong is not in the file.
void SetOption(const std::string& option, v1::Violation& violation) {
  violation.set_path(option);
  violation.clear_file();
  violation.clear_line();
  violation.clear_column();
}

}  // namespace

absl::StatusOr<JobFile> LoadJobFile(Context& context, const std::string& file, const JobOverrides& overrides,
                                    std::optional<bool> files_are_here) {
  jobspec::ReadResult read = jobspec::ReadFile(file);
  if (!overrides.name.empty()) {
    read.spec.set_name(overrides.name);
  }
  if (!overrides.resume.empty()) {
    read.spec.mutable_checkpoint()->set_resume(overrides.resume);
  }
  std::vector<std::string> set_paths;
  for (const std::string& setting : overrides.set) {
    set_paths.push_back(setting.substr(0, setting.find('=')));
    const std::vector<v1::Violation> wrong = ApplySetting(setting, read.spec);
    read.violations.insert(read.violations.end(), wrong.begin(), wrong.end());
  }
  bool looked = false;
  jobspec::Checked checked = jobspec::CheckAll(read, [&](const v1::JobSpec& resolved) {
    const std::string& train = resolved.data().train();
    looked = files_are_here.has_value() && (*files_are_here || (!train.empty() && ExistsHere(train)));
    return looked;
  });
  if (!checked.violations.empty()) {
    for (v1::Violation& violation : checked.violations) {
      if (violation.path() == "name" && !overrides.name.empty()) {
        SetOption("--name", violation);
      }
      if (violation.path() == "checkpoint.resume" && !overrides.resume.empty()) {
        SetOption("--resume", violation);
      }
      if (IsSet(violation.path(), set_paths)) {
        SetOption(absl::StrCat("--set ", violation.path()), violation);
      }
    }
    context.console.Write(Stream::kErr, jobspec::ToText(checked.violations));
    return Failure(kInvalidSpec, "");
  }
  JobFile job{std::move(read.spec), std::move(checked.resolved)};
  if (!looked && files_are_here.has_value()) {
    Note(context.console, absl::StrCat("data.train: ", Escape(job.resolved.data().train()),
                                       " is not on this machine; the workers will check it"));
  }
  return job;
}

}  // namespace tandem::cli
