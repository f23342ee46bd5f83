// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/job_file.h"

#include <glob.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "google/protobuf/message.h"
#include "jobspec/jobspec.h"
#include "nlohmann/json.hpp"

namespace tandem::cli {
namespace {

constexpr char kSet[] = "--set";

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

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

v1::Violation Wrong(const std::string& setting) {
  v1::Violation violation;
  violation.set_path(kSet);
  violation.set_value(setting);
  violation.set_allowed("FIELD=VALUE, as in training.steps=20");
  violation.set_remedy("docs/job_reference.md lists the fields");
  return violation;
}

bool IsWord(absl::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// The value as YAML of a job file has it. What stands in a shell's word is text: it begins no comment, and no
// alias.
std::string ValueText(absl::string_view value) {
  const bool is_yaml = !value.empty() && absl::StrContains("[{\"'", value.substr(0, 1));
  const bool is_plain = !absl::StrContains(value, " #") && !absl::StrContains(value, ": ") &&
                        !absl::EndsWith(value, ":") && !value.empty() &&
                        !absl::StrContains("#*&!|>%@`,]}", value.substr(0, 1));
  return is_yaml || is_plain ? std::string(value)
                             : nlohmann::json(std::string(value))
                                   .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Forgets what stands at a path. What does not exist is left to the reader, which says so.
void Clear(const std::vector<std::string>& path, Message& message) {
  Message* at = &message;
  for (size_t i = 0; i < path.size(); ++i) {
    const FieldDescriptor* field = at->GetDescriptor()->FindFieldByName(path[i]);
    if (field == nullptr) {
      return;
    }
    if (i + 1 == path.size()) {
      at->GetReflection()->ClearField(at, field);
    } else if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_repeated()) {
      return;
    } else {
      at = at->GetReflection()->MutableMessage(at, field);
    }
  }
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
      if (violation.path() == kSet) {
        SetOption(kSet, violation);
      } else if (IsSet(violation.path(), set_paths)) {
        SetOption(absl::StrCat(kSet, " ", violation.path()), violation);
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

std::vector<v1::Violation> ApplySetting(const std::string& setting, v1::JobSpec& spec) {
  const size_t equals = setting.find('=');
  if (equals == std::string::npos) {
    return {Wrong(setting)};
  }
  const std::vector<std::string> path = absl::StrSplit(setting.substr(0, equals), '.');
  const std::string value = setting.substr(equals + 1);
  const bool printable = std::all_of(value.begin(), value.end(), [](unsigned char c) { return c >= 0x20; });
  if (!std::all_of(path.begin(), path.end(), IsWord) || !printable) {
    return {Wrong(setting)};
  }
  std::string yaml;
  for (size_t i = 0; i < path.size(); ++i) {
    absl::StrAppend(&yaml, i == 0 ? "" : "\n", std::string(2 * i, ' '), path[i], ":");
  }
  absl::StrAppend(&yaml, " ", ValueText(value), "\n");
  jobspec::ReadResult read = jobspec::ReadText(yaml, "");
  if (read.violations.empty()) {
    Clear(path, spec);
    spec.MergeFrom(read.spec);
  }
  for (v1::Violation& violation : read.violations) {
    violation.set_path(violation.path().empty() ? absl::StrCat("--set ", setting.substr(0, equals))
                                                : violation.path());
    violation.clear_line();
    violation.clear_column();
  }
  return std::move(read.violations);
}

}  // namespace tandem::cli
