// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "google/protobuf/message.h"
#include "jobspec/field_rules.h"
#include "jobspec/hugging_face_config.h"
#include "jobspec/jobspec.h"
#include "jobspec/resume.h"
#include "jobspec/schema.h"
#include "jobspec/text.h"
#include "platform/file_list.h"

namespace tandem::jobspec {
namespace {

class PathLocalizer {
 public:
  explicit PathLocalizer(std::vector<v1::Violation>& violations) : violations_(violations) {
    std::error_code error;
    folder_ = std::filesystem::current_path(error).string();
    error_ = error ? error.message() : "";
  }

  std::string Absolute(const std::string& path, const std::string& value, bool glob) {
    if (value.empty() || value.front() == '/') {
      return value;
    }
    if (value.front() == '~') {
      violations_.push_back(
          MakeViolation(path, value, "a path without ~", "only a shell knows ~: write the folder out"));
      return value;
    }
    if (!error_.empty()) {
      violations_.push_back(MakeViolation(path, value, "an absolute path",
                                          absl::StrCat("the working directory is unknown: ", error_)));
      return value;
    }
    std::string rest = value;
    while (rest.starts_with("./")) {
      rest.erase(0, 2);
    }
    if (rest.empty() || rest == ".") {
      return folder_;
    }
    std::error_code error;
    std::string folder = folder_;
    if (glob && platform::HasGlobCharacters(rest) && !std::filesystem::exists(value, error)) {
      folder = absl::StrReplaceAll(folder, {{"\\", "\\\\"}, {"*", "\\*"}, {"?", "\\?"}, {"[", "\\["}});
    }
    return absl::StrCat(folder, folder == "/" ? "" : "/", rest);
  }

 private:
  std::vector<v1::Violation>& violations_;
  std::string folder_;
  std::string error_;
};

}  // namespace

std::vector<v1::Violation> Localize(v1::JobSpec& spec) {
  std::vector<v1::Violation> violations;
  // A preset beside it is Validate's to refuse.
  if (spec.model().has_hugging_face() && !spec.model().has_preset()) {
    violations = ReadHuggingFace(*spec.mutable_model());
  }
  PathLocalizer paths(violations);
  for (const PathRule& rule : kPathRules) {
    for (const std::string& path : PathsOf(spec, rule.path)) {
      const FieldValue value = FindValue(spec, path);
      if (value.message == nullptr) {
        continue;
      }
      const google::protobuf::Reflection& reflection = *value.message->GetReflection();
      const std::string given = reflection.GetString(*value.message, value.field);
      if (path != "checkpoint.resume" || IsResumePath(given)) {
        auto& block =
            const_cast<google::protobuf::Message&>(*value.message);  // of `spec`, which is not const
        reflection.SetString(&block, value.field, paths.Absolute(path, given, rule.is_pattern));
      }
    }
  }
  return violations;
}

}  // namespace tandem::jobspec
