// SPDX-License-Identifier: Apache-2.0
#include "worker/path_rules.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/source_files.h"
#include "jobspec/data_texts.h"
#include "jobspec/resume.h"
#include "jobspec/source_folders.h"
#include "jobspec/start_weights.h"
#include "jobspec/text.h"
#include "platform/files.h"
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

// Where a path leads, also where nothing is there yet: through links to nothing, which whatever makes a file
// follows.
std::string LeadsTo(const std::string& path, std::error_code& error) {
  constexpr int kMostLinks = 40;
  fs::path to = path;
  for (int links = 0; links <= kMostLinks; ++links) {
    to = fs::weakly_canonical(to, error);
    if (error) {
      return path;
    }
    fs::path link = to;
    while (link.has_relative_path() && !fs::is_symlink(fs::symlink_status(link, error))) {
      link = link.parent_path();
    }
    error.clear();  // of what is not there
    if (!link.has_relative_path()) {
      return to.string();
    }
    const fs::path target = fs::read_symlink(link, error);
    const fs::path rest = to.lexically_relative(link);
    to = link.parent_path() / target / (rest == "." ? fs::path() : rest);
  }
  error = std::make_error_code(std::errc::too_many_symbolic_link_levels);
  return path;
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

  // Links in the folder, and in those in it, are judged as it is: what a job appends to or resumes from.
  void Checkpoints(const std::string& field, const std::string& path) {
    if (rules_.write.empty() || !before_(field, path) ||
        !Allow(field, path, path, rules_.write, "a folder", "--write-root")) {
      return;
    }
    std::error_code error;
    for (fs::recursive_directory_iterator entry(path, fs::directory_options::skip_permission_denied, error);
         !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
      if (entry->is_symlink(error) &&
          !Allow(field, path, entry->path().string(), rules_.write, "files", "--write-root")) {
        return;
      }
      if (entry.depth() > 0) {
        entry.disable_recursion_pending();
      }
    }
  }

  // What a job may read, of its own too: weights to start from, in files that may be links. Every name that
  // the folder has, also those that a text's folder would hide.
  void Weights(const std::string& field, const std::string& folder) {
    if (rules_.read.empty() || !before_(field, folder) ||
        !Allow(field, folder, folder, Readable(), "files", "--read-root")) {
      return;
    }
    const absl::StatusOr<std::vector<std::string>> names = platform::SystemFiles().List(folder);
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
      std::error_code error;
      const std::string file = absl::StrCat(folder, folder.ends_with('/') ? "" : "/", name);
      if (!fs::is_directory(file, error) && !Allow(field, folder, file, Readable(), "files", "--read-root")) {
        return;
      }
    }
  }

  // What a job copies into its checkpoint.directory, whose files its user can read.
  void Copied(const v1::JobSpec& spec, const std::string& start_field, const std::string& start) {
    const std::vector<jobspec::DataText> train = jobspec::TrainingTexts(spec.data());
    if (rules_.read.empty() || !violations_.empty() ||
        std::any_of(train.begin(), train.end(),
                    [&](const jobspec::DataText& text) { return !before_(text.field, text.path); }) ||
        (!start.empty() && !before_(start_field, start))) {
      return;
    }
    platform::Files& files = platform::SystemFiles();
    const absl::StatusOr<std::vector<checkpoint::SourceFile>> copied =
        checkpoint::SourceFiles(files, jobspec::SourceFolders(files, train, start_field, start));
    if (!copied.ok()) {
      violations_.push_back(jobspec::MakeViolation("checkpoint.directory", spec.checkpoint().directory(),
                                                   "files of a tokenizer that can be read",
                                                   std::string(copied.status().message())));
      return;
    }
    for (const checkpoint::SourceFile& file : *copied) {
      if (!Allow(file.field, file.path, file.path, Readable(), "files to copy", "--read-root",
                 "copy it below such a folder, and name it there (tokenizer.path of dataset.json names "
                 "that of a text)")) {
        return;
      }
    }
  }

  std::vector<v1::Violation> Take() { return std::move(violations_); }

 private:
  std::vector<std::string> Readable() const {
    std::vector<std::string> roots = rules_.read;
    roots.insert(roots.end(), rules_.write.begin(), rules_.write.end());
    return roots;
  }

  // `path` belongs to the field's `value`; parts of it that are not there yet lead where they are written.
  bool Allow(const std::string& field, const std::string& value, const std::string& path,
             const std::vector<std::string>& roots, const char* what, const char* flag,
             const char* remedy = "use another path") {
    std::error_code error;
    const std::string leads_to = LeadsTo(path, error);
    if (!error && fs::path(path).is_absolute() && IsBelowOneOf(leads_to, roots)) {
      return true;
    }
    violations_.push_back(jobspec::MakeViolation(
        field, value, absl::StrCat(what, " below ", absl::StrJoin(roots, ", ")),
        absl::StrCat(platform::Shown(path, 200),
                     error              ? ": " + error.message()
                     : leads_to == path ? " lies elsewhere"
                                        : absl::StrCat(" leads to ", platform::Shown(leads_to, 200)),
                     ": ", remedy, ", or have the operator of this worker allow it (", flag, ")")));
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
  if (resolved.checkpoint().has_directory()) {
    if (jobspec::IsResumePath(resolved.checkpoint().resume())) {
      checker.Copied(resolved, "checkpoint.resume", resolved.checkpoint().resume());
    } else {
      checker.Copied(resolved, jobspec::kStartFrom, resolved.checkpoint().start_from());
    }
  }
  return checker.Take();
}

}  // namespace tandem::worker
