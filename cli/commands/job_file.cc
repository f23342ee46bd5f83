// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/job_file.h"

#include <glob.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "google/protobuf/message.h"
#include "jobspec/data_texts.h"
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

// Whether --set has set the value at this path, or one that contains it.
bool IsSet(const std::string& path, const std::vector<std::string>& set_paths) {
  return std::any_of(set_paths.begin(), set_paths.end(), [&](const std::string& set) {
    return path == set || absl::StartsWith(path, set + ".") || absl::StartsWith(path, set + "[");
  });
}

// Makes a violation name an option, not a place in the file.
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

// One key of a path: "sources[1]".
struct Key {
  std::string word;
  int index = -1;  // of the entry of a list; -1: none is given
};

// Parses a path; nullopt if it is malformed.
std::optional<std::vector<Key>> KeysOf(const std::string& path) {
  std::vector<Key> keys;
  for (const std::string& text : std::vector<std::string>(absl::StrSplit(path, '.'))) {
    const size_t bracket = text.find('[');
    Key key{.word = text.substr(0, bracket)};
    const bool has_index = bracket != std::string::npos;
    if (!IsWord(key.word) ||
        (has_index && (!absl::EndsWith(text, "]") ||
                       !absl::SimpleAtoi(text.substr(bracket + 1, text.size() - bracket - 2), &key.index) ||
                       key.index < 0))) {
      return std::nullopt;
    }
    keys.push_back(std::move(key));
  }
  return keys;
}

// Returns a job file that has the value alone, in the first entry of each list on the path.
std::string YamlOf(const std::vector<Key>& path, absl::string_view value) {
  std::string before;
  std::string behind;
  for (const Key& key : path) {
    const bool in_list = key.index >= 0;
    absl::StrAppend(&before, "{", key.word, ": ", in_list ? "[" : "");
    behind.insert(0, in_list ? "]}" : "}");
  }
  return absl::StrCat(before, value, behind, "\n");
}

// Returns the value as YAML. Puts it in quotes if YAML would take a part of it for a comment, an alias or
// other syntax.
std::string ValueText(absl::string_view value) {
  const bool is_yaml = !value.empty() && absl::StrContains("[{\"'", value.substr(0, 1));
  const bool is_plain = !absl::StrContains(value, " #") && !absl::StrContains(value, ": ") &&
                        !absl::EndsWith(value, ":") && !value.empty() &&
                        value.find_first_of(",?[]{}") == value.npos &&
                        !absl::StrContains("#*&!|>%@`", value.substr(0, 1));
  return is_yaml || is_plain ? std::string(value)
                             : nlohmann::json(std::string(value))
                                   .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Returns the path of the value in that job file.
std::string PathOf(const std::vector<Key>& path) {
  std::string out;
  for (const Key& key : path) {
    absl::StrAppend(&out, out.empty() ? "" : ".", key.word, key.index >= 0 ? "[0]" : "");
  }
  return out;
}

// Whether that job file has fields or entries beside the value, as in name='a', training: {steps: 9}.
bool HasMore(const jobspec::ReadResult& read, const std::string& of_value) {
  return std::any_of(read.positions.begin(), read.positions.end(), [&](const auto& position) {
    const std::string& path = position.first;
    return !IsSet(path, {of_value}) && !IsSet(of_value, {path});
  });
}

// Replaces the value at `path` in the spec by the one in that job file. If the path has an index beyond its
// list, changes nothing and returns the size of the list.
std::optional<int> Put(const std::vector<Key>& path, const Message& value, Message& spec) {
  const Message* from = &value;
  Message* to = &spec;
  for (size_t i = 0; i < path.size(); ++i) {
    const FieldDescriptor& field = *to->GetDescriptor()->FindFieldByName(path[i].word);
    const google::protobuf::Reflection& reflection = *to->GetReflection();
    const bool is_last = i + 1 == path.size();
    if (path[i].index < 0 && is_last) {
      reflection.ClearField(to, &field);
      to->MergeFrom(*from);
      return std::nullopt;
    }
    if (path[i].index < 0) {
      from = &reflection.GetMessage(*from, &field);
      to = reflection.MutableMessage(to, &field);
      continue;
    }
    const int size = reflection.FieldSize(*to, &field);
    if (path[i].index >= size) {
      return size;
    }
    from = &reflection.GetRepeatedMessage(*from, &field, 0);
    to = reflection.MutableRepeatedMessage(to, &field, path[i].index);
  }
  to->CopyFrom(*from);
  return std::nullopt;
}

}  // namespace

absl::StatusOr<JobFile> LoadJobFile(Context& context, const JobSource& source,
                                    std::optional<bool> files_are_here) {
  jobspec::ReadResult read = jobspec::ReadFile(source.file);
  if (!source.name.empty()) {
    read.spec.set_name(source.name);
  }
  if (!source.resume.empty()) {
    read.spec.mutable_checkpoint()->set_resume(source.resume);
  }
  std::vector<std::string> set_paths;
  for (const std::string& setting : source.set) {
    set_paths.push_back(setting.substr(0, setting.find('=')));
    const std::vector<v1::Violation> wrong = ApplySetting(setting, read.spec);
    read.violations.insert(read.violations.end(), wrong.begin(), wrong.end());
  }
  bool looked = false;
  jobspec::Checked checked = jobspec::CheckAll(read, [&](const v1::JobSpec& resolved) {
    const std::vector<jobspec::DataText> train = jobspec::TrainingTexts(resolved.data());
    looked = files_are_here.has_value() &&
             (*files_are_here || std::any_of(train.begin(), train.end(),
                                             [](const auto& text) { return ExistsHere(text.path); }));
    return looked;
  });
  if (!checked.violations.empty()) {
    for (v1::Violation& violation : checked.violations) {
      if (violation.path() == "name" && !source.name.empty()) {
        SetOption("--name", violation);
      }
      if (violation.path() == "checkpoint.resume" && !source.resume.empty()) {
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
    const std::vector<jobspec::DataText> train = jobspec::TrainingTexts(job.resolved.data());
    Note(context.console, absl::StrCat(train.at(0).field, ": ", Escape(train.at(0).path),
                                       " is not on this machine; the workers will check it"));
  }
  return job;
}

std::vector<v1::Violation> ApplySetting(const std::string& setting, v1::JobSpec& spec) {
  const size_t equals = setting.find('=');
  if (equals == std::string::npos) {
    return {Wrong(setting)};
  }
  const std::string name = setting.substr(0, equals);
  const std::optional<std::vector<Key>> path = KeysOf(name);
  const std::string value = setting.substr(equals + 1);
  const bool printable = std::all_of(value.begin(), value.end(), [](unsigned char c) { return c >= 0x20; });
  if (!path.has_value() || !printable) {
    return {Wrong(setting)};
  }
  jobspec::ReadResult read = jobspec::ReadText(YamlOf(*path, ValueText(value)), "");
  const std::string of_first = PathOf(*path);
  if (read.violations.empty()) {
    if (HasMore(read, of_first)) {
      return {Wrong(setting)};
    }
    if (const std::optional<int> entries = Put(*path, read.spec, spec); entries.has_value()) {
      v1::Violation violation = Wrong(setting);
      violation.set_allowed(absl::StrCat("entries of the job file's list, which has ", *entries));
      violation.set_remedy("an index counts from 0; the whole list can be set as FIELD=[{...}, {...}]");
      return {violation};
    }
  }
  for (v1::Violation& violation : read.violations) {
    const std::string& at = violation.path();
    violation.set_path(at.empty()                       ? absl::StrCat("--set ", name)
                       : absl::StartsWith(at, of_first) ? absl::StrCat(name, at.substr(of_first.size()))
                                                        : at);
    violation.clear_line();
    violation.clear_column();
  }
  return std::move(read.violations);
}

}  // namespace tandem::cli
