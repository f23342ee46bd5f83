#include "cli/job_file.h"

#include <glob.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/display_text.h"
#include "cli/error.h"
#include "jobspec/jobspec.h"

namespace tandem::cli {
namespace {

bool ExistsHere(const std::string& pattern) {
  glob_t found = {};
  const bool exists = ::glob(pattern.c_str(), 0, nullptr, &found) == 0;
  ::globfree(&found);
  return exists;
}

void Print(Context& context, const std::vector<v1::Violation>& violations) {
  std::string text;
  for (const v1::Violation& violation : violations) {
    absl::StrAppend(&text, jobspec::ToText(violation), "\n");
  }
  context.console.Write(Stream::kErr, text);
}

}  // namespace

std::optional<JobFile> LoadJobFile(Context& context, const std::string& file, const std::string& name,
                                   std::optional<bool> files_are_here) {
  jobspec::ReadResult read = jobspec::ReadFile(file);
  if (!read.violations.empty()) {
    Print(context, read.violations);
    return std::nullopt;
  }
  if (!name.empty()) {
    read.spec.set_name(name);
  }
  std::vector<v1::Violation> violations = jobspec::Localize(read.spec);
  for (v1::Violation& violation : jobspec::Validate(read.spec)) {
    violations.push_back(std::move(violation));
  }
  JobFile job{read.spec, jobspec::Resolve(read.spec)};
  const std::string& train = job.resolved.data().train();
  const bool look = files_are_here.has_value() && (*files_are_here || (!train.empty() && ExistsHere(train)));
  if (violations.empty() && look) {
    violations = jobspec::CheckFiles(job.resolved);
  }
  if (!violations.empty()) {
    jobspec::Locate(read, violations);
    Print(context, violations);
    return std::nullopt;
  }
  if (!look && files_are_here.has_value()) {
    Note(context.console,
         absl::StrCat("data.train: ", Escape(train), " is not on this machine; the workers will check it"));
  }
  return job;
}

}  // namespace tandem::cli
