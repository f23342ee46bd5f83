// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
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
  if (spec.data().has_train()) {
    spec.mutable_data()->set_train(paths.Absolute("data.train", spec.data().train(), /*glob=*/true));
  }
  if (spec.data().has_validation()) {
    spec.mutable_data()->set_validation(
        paths.Absolute("data.validation", spec.data().validation(), /*glob=*/true));
  }
  for (int i = 0; i < spec.data().sources_size(); ++i) {
    v1::DataSource& source = *spec.mutable_data()->mutable_sources(i);
    if (source.has_path()) {
      source.set_path(paths.Absolute(EntryPath("data.sources", i) + ".path", source.path(), /*glob=*/true));
    }
  }
  for (int i = 0; i < spec.data().validation_sets_size(); ++i) {
    v1::ValidationSet& set = *spec.mutable_data()->mutable_validation_sets(i);
    if (set.has_path()) {
      set.set_path(paths.Absolute(EntryPath("data.validation_sets", i) + ".path", set.path(), /*glob=*/true));
    }
  }
  if (spec.checkpoint().has_directory()) {
    spec.mutable_checkpoint()->set_directory(
        paths.Absolute("checkpoint.directory", spec.checkpoint().directory(), /*glob=*/false));
  }
  if (spec.checkpoint().export_().has_to()) {
    spec.mutable_checkpoint()->mutable_export_()->set_to(
        paths.Absolute("checkpoint.export.to", spec.checkpoint().export_().to(), /*glob=*/false));
  }
  if (spec.checkpoint().has_start_from()) {
    spec.mutable_checkpoint()->set_start_from(
        paths.Absolute("checkpoint.start_from", spec.checkpoint().start_from(), /*glob=*/false));
  }
  if (IsResumePath(spec.checkpoint().resume())) {
    spec.mutable_checkpoint()->set_resume(
        paths.Absolute("checkpoint.resume", spec.checkpoint().resume(), /*glob=*/false));
  }
  return violations;
}

}  // namespace tandem::jobspec
