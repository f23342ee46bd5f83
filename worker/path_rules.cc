// SPDX-License-Identifier: Apache-2.0
#include "worker/path_rules.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "jobspec/data_texts.h"
#include "jobspec/resume.h"
#include "jobspec/text.h"
#include "platform/file_list.h"
#include "platform/shown_text.h"

namespace tandem::worker {
namespace {

namespace fs = std::filesystem;

// The root itself, or something below it.
bool IsBelow(const std::string& path, const std::string& root) {
  return path == root || (path.starts_with(root) && (root == "/" || path[root.size()] == '/'));
}

bool IsBelowOneOf(const std::string& path, const std::vector<std::string>& roots) {
  return std::any_of(roots.begin(), roots.end(),
                     [&](const std::string& root) { return IsBelow(path, root); });
}

absl::StatusOr<std::vector<std::string>> CanonicalRoots(const char* flag,
                                                        const std::vector<std::string>& roots) {
  std::vector<std::string> out;
  for (const std::string& root : roots) {
    std::error_code error;
    const fs::path path = fs::canonical(root, error);
    if (error || !fs::is_directory(path, error)) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " ", root, ": ", error ? error.message() : "it is not a folder",
                       "; make the folder, or omit the flag to allow every path"));
    }
    out.push_back(path.string());
  }
  return out;
}

class Checker {
 public:
  Checker(const PathRules& rules, const jobspec::BeforePath& before) : rules_(rules), before_(before) {}

  void Data(const std::string& field, const std::string& pattern) {
    if (rules_.read.empty() || !before_(field, pattern)) {
      return;
    }
    // Where there are none, this is said when the files are looked for.
    for (const std::string& path : jobspec::DataPaths(pattern)) {
      if (!Allow(field, pattern, path, rules_.read, "files", "--read-root")) {
        return;
      }
    }
  }

  void Checkpoints(const std::string& field, const std::string& path) {
    if (!rules_.write.empty() && before_(field, path)) {
      Allow(field, path, path, rules_.write, "a folder", "--write-root");
    }
  }

  // What a job may read, of its own too: weights to start from, in files that may be links.
  void Weights(const std::string& field, const std::string& folder) {
    if (rules_.read.empty() || !before_(field, folder)) {
      return;
    }
    std::vector<std::string> roots = rules_.read;
    roots.insert(roots.end(), rules_.write.begin(), rules_.write.end());
    const absl::StatusOr<std::vector<std::string>> files = platform::ListFiles(folder);
    for (const std::string& file : files.ok() ? *files : std::vector<std::string>{folder}) {
      if (!Allow(field, folder, file, roots, "files", "--read-root")) {
        return;
      }
    }
  }

  std::vector<v1::Violation> Take() { return std::move(violations_); }

 private:
  // `path` belongs to the field's `value`; parts of it that are not there yet lead where they are written.
  bool Allow(const std::string& field, const std::string& value, const std::string& path,
             const std::vector<std::string>& roots, const char* what, const char* flag) {
    std::error_code error;
    const std::string leads_to = fs::weakly_canonical(path, error).string();
    if (!error && fs::path(path).is_absolute() && IsBelowOneOf(leads_to, roots)) {
      return true;
    }
    violations_.push_back(jobspec::MakeViolation(
        field, value, absl::StrCat(what, " below ", absl::StrJoin(roots, ", ")),
        absl::StrCat(platform::Shown(path, 200),
                     error              ? ": " + error.message()
                     : leads_to == path ? " lies elsewhere"
                                        : absl::StrCat(" leads to ", platform::Shown(leads_to, 200)),
                     ": use another path, or have the operator of this worker allow it (", flag, ")")));
    return false;
  }

  const PathRules& rules_;
  const jobspec::BeforePath& before_;
  std::vector<v1::Violation> violations_;
};

}  // namespace

absl::StatusOr<PathRules> Canonical(const PathRules& rules) {
  absl::StatusOr<std::vector<std::string>> read = CanonicalRoots("--read-root", rules.read);
  absl::StatusOr<std::vector<std::string>> write = CanonicalRoots("--write-root", rules.write);
  if (!read.ok() || !write.ok()) {
    return read.ok() ? write.status() : read.status();
  }
  return PathRules{.read = *std::move(read), .write = *std::move(write)};
}

std::vector<v1::Violation> CheckPaths(const v1::JobSpec& resolved, const PathRules& rules,
                                      const jobspec::BeforePath& before) {
  Checker checker(rules, before);
  for (const jobspec::DataText& text : jobspec::TrainingTexts(resolved.data())) {
    checker.Data(text.field, text.path);
  }
  for (const jobspec::DataText& text : jobspec::ValidationTexts(resolved.data())) {
    checker.Data(text.field, text.path);
  }
  if (resolved.checkpoint().has_directory()) {
    checker.Checkpoints("checkpoint.directory", resolved.checkpoint().directory());
  }
  if (resolved.checkpoint().has_start_from()) {
    checker.Weights("checkpoint.start_from", resolved.checkpoint().start_from());
  }
  if (jobspec::IsResumePath(resolved.checkpoint().resume())) {
    checker.Checkpoints("checkpoint.resume", resolved.checkpoint().resume());
  }
  return checker.Take();
}

}  // namespace tandem::worker
