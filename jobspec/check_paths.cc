// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "jobspec/checks.h"
#include "jobspec/field_rules.h"
#include "jobspec/resume.h"
#include "jobspec/schema.h"

namespace tandem::jobspec {
namespace {

constexpr size_t kMaxPathBytes = 4000;  // below PATH_MAX, with room for the names that are put below it

// Whether the names say so, whatever is a link.
bool IsInFolder(const std::string& path, const std::string& folder) {
  const auto normal = [](const std::string& text) {
    return (std::filesystem::path(text) / "").lexically_normal().string();
  };
  return normal(path).starts_with(normal(folder));
}

void CheckExports(FieldChecker& check) {
  const v1::Checkpoint& checkpoint = check.spec().checkpoint();
  const v1::Exports& exports = checkpoint.export_();
  constexpr char kEverySteps[] = "checkpoint.export.every_steps";
  constexpr char kTo[] = "checkpoint.export.to";
  if (!exports.has_every_steps()) {
    check.Refuse(kEverySteps, "say after how many steps a checkpoint is exported, or omit the block");
  } else if (check.Usable({"checkpoint.every_steps", kEverySteps})) {
    if (checkpoint.every_steps() == 0) {
      check.Forbid(kEverySteps, "checkpoints are saved at the end alone: give checkpoint.every_steps, too");
    } else if (exports.every_steps() % checkpoint.every_steps() != 0) {
      check.Refuse(kEverySteps, absl::StrCat("multiples of ", check.Named("checkpoint.every_steps")),
                   "a checkpoint that is saved is exported");
    }
  }
  if (!exports.has_to()) {
    check.Refuse(kTo, "name the folder of the exports, or omit the block");
  } else if (check.Usable({"checkpoint.directory", kTo}) &&
             IsInFolder(exports.to(), checkpoint.directory())) {
    check.Forbid(kTo, "it is in checkpoint.directory: name a folder beside that");
  }
  if (check.Usable({"precision.compute"}) && check.spec().precision().compute() == v1::COMPUTE_TYPE_FP64) {
    check.Forbid("checkpoint.export",
                 "only checkpoints of fp32 are exported, not those of precision: {compute: fp64}: omit the "
                 "block, or use another type");
  }
}

void CheckPath(FieldChecker& check, std::string_view path, const std::string& value) {
  if (value.empty()) {
    check.Refuse(
        path, "\"\"", AllowedText(path),
        path == "data.train" || path.ends_with(".path") ? "give a path" : "give a path, or omit the key");
  } else if (value.size() > kMaxPathBytes) {
    check.Refuse(path, value, absl::StrCat("a path of at most ", kMaxPathBytes, " bytes"),
                 absl::StrCat("it has ", value.size()));
  } else if (value.front() != '/') {
    check.Refuse(
        path, absl::StrCat("the relative path ", value), AllowedText(path),
        "other machines have another working directory: write the whole path (tandem submit and tandem "
        "run do so)");
  }
}

}  // namespace

void CheckPaths(FieldChecker& check) {
  for (const PathRule& rule : kPathRules) {
    for (const std::string& path : PathsOf(check.spec(), rule.path)) {
      const FieldValue value = FindValue(check.spec(), path);
      if (value.message == nullptr) {
        continue;
      }
      const std::string given = value.message->GetReflection()->GetString(*value.message, value.field);
      if (path != "checkpoint.resume" || (given != kResumeNewest && given != kResumeNone)) {
        CheckPath(check, path, given);
      }
    }
  }
}

void CheckCheckpoint(FieldChecker& check) {
  const v1::Checkpoint& checkpoint = check.spec().checkpoint();
  if (!checkpoint.has_directory() && (checkpoint.has_every_steps() || checkpoint.has_keep() ||
                                      checkpoint.has_resume() || checkpoint.has_export_())) {
    check.Refuse("checkpoint.directory", "", AllowedText("checkpoint.directory"),
                 "name the folder of the checkpoints, or omit the block");
  }
  if (checkpoint.has_start_from() && IsResumePath(checkpoint.resume())) {
    check.Forbid("checkpoint.start_from",
                 "checkpoint.resume names a checkpoint to go on from: omit one of the two, or use resume: "
                 "newest");
  }
  if (checkpoint.has_export_()) {
    CheckExports(check);
  }
}

}  // namespace tandem::jobspec
