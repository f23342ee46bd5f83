// SPDX-License-Identifier: Apache-2.0
#include "worker/path_rules.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/folder.h"
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

// Whether the path is the root itself or below it.
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

// Returns where a path leads, even if nothing is there yet, because a program that makes a file follows such
// links, too.
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
    error.clear();  // caused by what does not exist yet
    if (!link.has_relative_path()) {
      return to.string();
    }
    const fs::path target = fs::read_symlink(link, error);
    if (error) {
      return path;
    }
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
    // A pattern without files passes here; the check of files reports it.
    for (const std::string& path : jobspec::DataPaths(pattern)) {
      if (!Allow(field, pattern, path, rules_.read, "files", "--read-root")) {
        return;
      }
    }
  }

  // A job appends to files of the folder and resumes from its steps, so links in it must obey the rule for
  // the folder.
  void Checkpoints(const std::string& field, const std::string& path) {
    if (!rules_.write.empty() && before_(field, path) &&
        Allow(field, path, path, rules_.write, "a folder", "--write-root")) {
      LinksIn(field, path, path, /*levels=*/1);
    }
  }

  // Weights to start from may also lie where the job may write, and their files may be links. All names in
  // the folder are checked, also names that are hidden in the folder of a text.
  void Weights(const std::string& field, const std::string& folder) {
    if (rules_.read.empty() || !before_(field, folder) ||
        !Allow(field, folder, folder, Readable(), "files", "--read-root")) {
      return;
    }
    const absl::StatusOr<std::vector<std::string>> names = NamesIn(field, folder, folder);
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
      std::error_code error;
      const std::string file = PathIn(folder, name);
      if (!fs::is_directory(file, error) && !Allow(field, folder, file, Readable(), "files", "--read-root")) {
        return;
      }
    }
  }

  // A job copies files into its checkpoint.directory, where its user can read them
  // (jobspec/source_folders.h), so they must be readable for jobs.
  void Copied(const v1::JobSpec& spec) {
    const std::vector<jobspec::DataText> train = jobspec::TrainingTexts(spec.data());
    if (rules_.read.empty() || !violations_.empty() || CopiesNothing(spec.checkpoint()) ||
        std::any_of(train.begin(), train.end(),
                    [&](const jobspec::DataText& text) { return !before_(text.field, text.path); })) {
      return;
    }
    const bool resumes = jobspec::IsResumePath(spec.checkpoint().resume());
    const std::string field = resumes ? "checkpoint.resume" : jobspec::kStartFrom;
    const std::string& start = resumes ? spec.checkpoint().resume() : spec.checkpoint().start_from();
    if (!start.empty() && !before_(field, start)) {
      return;
    }
    const std::vector<checkpoint::SourceFolder> folders = jobspec::SourceFolders(files_, train, field, start);
    for (const checkpoint::SourceFolder& folder : folders) {
      if (!NamesIn(folder.field, folder.path, folder.path).ok()) {
        return;
      }
    }
    const absl::StatusOr<std::vector<checkpoint::SourceFile>> copied =
        checkpoint::SourceFiles(files_, folders);
    for (const checkpoint::SourceFile& file : copied.ok() ? *copied : std::vector<checkpoint::SourceFile>()) {
      std::vector<std::string> roots = Readable();
      if (std::error_code error; resumes && file.field == field && rules_.write.empty()) {
        roots.push_back(LeadsTo(PathIn(start, ".."), error));  // a checkpoint may lie anywhere
      }
      if (!Allow(file.field, file.path, file.path, roots, "files to copy", "--read-root",
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

  static std::string PathIn(const std::string& folder, const std::string& name) {
    return absl::StrCat(folder, folder.ends_with('/') ? "" : "/", name);
  }

  // Whether the job continues in its own directory, so that it has copied the files already.
  bool CopiesNothing(const v1::Checkpoint& checkpoint) {
    const std::string& directory = checkpoint.directory();
    if (jobspec::IsResumePath(checkpoint.resume())) {
      const auto own = files_.IdOfFolder(directory);
      const auto other = files_.IdOfFolder(PathIn(checkpoint.resume(), ".."));
      return own.ok() && other.ok() && *own == *other;
    }
    const auto steps = checkpoint::ListSteps(files_, directory);
    return checkpoint.resume() == jobspec::kResumeNewest && steps.ok() && !steps->empty();
  }

  // Returns no names if nothing is there. A folder that cannot be listed is refused, because a rank may be
  // able to list it as another user.
  absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& field, const std::string& value,
                                                   const std::string& folder) {
    absl::StatusOr<std::vector<std::string>> names = files_.List(folder);
    if (absl::IsNotFound(names.status()) || absl::IsInvalidArgument(names.status())) {
      return std::vector<std::string>();
    }
    if (!names.ok()) {
      violations_.push_back(
          jobspec::MakeViolation(field, value, "folders that this worker can list",
                                 absl::StrCat(names.status().message(),
                                              ": let the user of the worker list it, or use another path")));
    }
    return names;
  }

  // Checks the links in a folder and, for `levels` levels, in the folders below it, linked or not. Returns
  // false if one is refused.
  bool LinksIn(const std::string& field, const std::string& value, const std::string& folder, int levels) {
    const absl::StatusOr<std::vector<std::string>> names = NamesIn(field, value, folder);
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
      std::error_code error;
      const std::string path = PathIn(folder, name);
      if (fs::is_symlink(fs::symlink_status(path, error)) &&
          !Allow(field, value, path, rules_.write, "files", "--write-root")) {
        return false;
      }
      if (levels > 0 && fs::is_directory(path, error) && !LinksIn(field, value, path, levels - 1)) {
        return false;
      }
    }
    return names.ok();
  }

  // `path` belongs to the field's `value`. Parts of it that do not exist yet lead where their names say.
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
  platform::Files& files_ = platform::SystemFiles();
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
  if (resolved.checkpoint().has_export_()) {
    checker.Checkpoints("checkpoint.export.to", resolved.checkpoint().export_().to());
  }
  if (resolved.checkpoint().has_start_from()) {
    checker.Weights("checkpoint.start_from", resolved.checkpoint().start_from());
  }
  if (jobspec::IsResumePath(resolved.checkpoint().resume())) {
    checker.Checkpoints("checkpoint.resume", resolved.checkpoint().resume());
  }
  if (resolved.checkpoint().has_directory()) {
    checker.Copied(resolved);
  }
  return checker.Take();
}

}  // namespace tandem::worker
