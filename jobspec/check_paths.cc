// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "jobspec/checks.h"
#include "jobspec/field_rules.h"
#include "jobspec/resume.h"
#include "jobspec/schema.h"

namespace tandem::jobspec {
namespace {

constexpr size_t kMaxPathBytes = 4000;  // below PATH_MAX, with room for the names that are put below it

}  // namespace

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

void CheckCheckpoint(FieldChecker& check) {
  const v1::Checkpoint& checkpoint = check.spec().checkpoint();
  if (checkpoint.has_directory()) {
    CheckPath(check, "checkpoint.directory", checkpoint.directory());
  } else if (check.spec().has_checkpoint() &&
             (checkpoint.has_every_steps() || checkpoint.has_keep() || checkpoint.has_resume())) {
    check.Refuse("checkpoint.directory", "", AllowedText("checkpoint.directory"),
                 "name the folder of the checkpoints, or omit the block");
  }
  if (checkpoint.has_resume() && checkpoint.resume() != kResumeNewest && checkpoint.resume() != kResumeNone) {
    CheckPath(check, "checkpoint.resume", checkpoint.resume());
  }
  if (checkpoint.has_start_from()) {
    CheckPath(check, "checkpoint.start_from", checkpoint.start_from());
    if (IsResumePath(checkpoint.resume())) {
      check.Forbid("checkpoint.start_from",
                   "checkpoint.resume names a checkpoint to go on from: omit one of the two, or use resume: "
                   "newest");
    }
  }
}

}  // namespace tandem::jobspec
