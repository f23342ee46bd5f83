// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/job_file.h"

#include <glob.h>

#include <vector>

#include "absl/strings/str_cat.h"
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

// What is wrong is not in the file.
void SetOption(const char* option, v1::Violation& violation) {
  violation.set_path(option);
  violation.clear_file();
  violation.clear_line();
  violation.clear_column();
}

void Print(Context& context, const std::vector<v1::Violation>& violations) {
  std::string text;
  for (const v1::Violation& violation : violations) {
    absl::StrAppend(&text, jobspec::ToText(violation), "\n");
  }
  context.console.Write(Stream::kErr, text);
}

}  // namespace

std::optional<JobFile> LoadJobFile(Context& context, const std::string& file, const JobOverrides& overrides,
                                   std::optional<bool> files_are_here) {
  jobspec::ReadResult read = jobspec::ReadFile(file);
  if (!overrides.name.empty()) {
    read.spec.set_name(overrides.name);
  }
  if (!overrides.resume.empty()) {
    read.spec.mutable_checkpoint()->set_resume(overrides.resume);
  }
  // Where the data lies is only known of what was read; CheckAll leaves it localized.
  v1::JobSpec localized = read.spec;
  jobspec::Localize(localized);
  const std::string train = jobspec::Resolve(localized).data().train();
  const bool look = files_are_here.has_value() && (*files_are_here || (!train.empty() && ExistsHere(train)));
  std::vector<v1::Violation> violations = jobspec::CheckAll(read, look);
  if (!violations.empty()) {
    for (v1::Violation& violation : violations) {
      if (violation.path() == "name" && !overrides.name.empty()) SetOption("--name", violation);
      if (violation.path() == "checkpoint.resume" && !overrides.resume.empty()) {
        SetOption("--resume", violation);
      }
    }
    Print(context, violations);
    return std::nullopt;
  }
  JobFile job{read.spec, jobspec::Resolve(read.spec)};
  if (!look && files_are_here.has_value()) {
    Note(context.console,
         absl::StrCat("data.train: ", Escape(train), " is not on this machine; the workers will check it"));
  }
  return job;
}

}  // namespace tandem::cli
