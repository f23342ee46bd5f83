// SPDX-License-Identifier: Apache-2.0
#include "jobspec/check_files.h"

#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/start_files.h"
#include "data/token_files.h"
#include "jobspec/check_text_files.h"
#include "jobspec/decoder_config.h"
#include "jobspec/jobspec.h"
#include "jobspec/resume.h"
#include "jobspec/start_weights.h"
#include "jobspec/text.h"
#include "model/parameter_and_flop_counts.h"
#include "platform/files.h"
#include "platform/shown_text.h"

namespace tandem::jobspec {
namespace {

// The first name in the folder that says that it is in use; none where it is as good as empty.
std::optional<std::string> FirstHeld(const std::string& folder, std::error_code& error) {
  namespace fs = std::filesystem;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!checkpoint::CountsAsNothing(name)) {
      return name;
    }
  }
  return std::nullopt;
}

class FileChecker {
 public:
  FileChecker(const v1::JobSpec& spec, const BeforePath& before) : spec_(spec), before_(before) {}

  std::vector<v1::Violation> Run() {
    violations_ = CheckTextFiles(spec_, before_);
    if (spec_.checkpoint().has_directory() &&
        before_("checkpoint.directory", spec_.checkpoint().directory())) {
      CheckDirectory(spec_.checkpoint().directory());
    }
    if (spec_.checkpoint().has_start_from() && before_(kStartFrom, spec_.checkpoint().start_from())) {
      for (v1::Violation& violation : CheckStartFrom(platform::SystemFiles(), spec_)) {
        violations_.push_back(std::move(violation));
      }
    }
    if (IsResumePath(spec_.checkpoint().resume()) &&
        before_("checkpoint.resume", spec_.checkpoint().resume())) {
      CheckResume(spec_.checkpoint().resume());
    }
    return std::move(violations_);
  }

 private:
  void Refuse(const std::string& path, const std::string& value, const std::string& allowed,
              const std::string& remedy) {
    violations_.push_back(MakeViolation(path, value, allowed, remedy));
  }

  void CheckDirectory(const std::string& directory) {
    namespace fs = std::filesystem;
    constexpr char kPath[] = "checkpoint.directory";
    constexpr char kAllowed[] = "a folder that can be made, or written to";
    std::error_code error;
    fs::path existing = fs::path(directory).lexically_normal();
    if (!existing.has_filename()) {
      existing = existing.parent_path();  // without the slash at its end, which follows a link
    }
    while (!fs::exists(existing, error) && !error && existing.has_relative_path()) {
      if (fs::is_symlink(fs::symlink_status(existing, error))) {
        Refuse(
            kPath, directory, kAllowed,
            absl::StrCat(platform::Shown(existing.string(), 200), " is a symbolic link to ",
                         platform::Shown(fs::read_symlink(existing, error).string(), 200),
                         ", where nothing is: make that folder, mount its file system, or remove the link"));
        return;
      }
      existing = existing.parent_path();
    }
    if (error) {
      Refuse(kPath, directory, kAllowed,
             absl::StrCat("cannot look at ", platform::Shown(existing.string(), 200), ": ", error.message()));
      return;
    }
    if (!fs::is_directory(existing, error)) {
      Refuse(kPath, directory, kAllowed,
             absl::StrCat(platform::Shown(existing.string(), 200), " is not a folder"));
      return;
    }
    if (access(existing.c_str(), W_OK | X_OK) != 0) {
      Refuse(
          kPath, directory, kAllowed,
          absl::StrCat("cannot write to ", platform::Shown(existing.string(), 200), ": ", strerror(errno)));
      return;
    }
    if (!spec_.checkpoint().has_resume() && fs::is_directory(directory, error)) {
      const std::optional<std::string> held = FirstHeld(directory, error);
      if (error) {
        Refuse(kPath, directory, kAllowed, absl::StrCat("cannot be listed: ", error.message()));
        return;
      }
      if (held) {
        Refuse(kPath, directory, "a new or empty folder, unless checkpoint.resume says how to go on",
               absl::StrCat("it holds ", platform::Shown(*held, 100),
                            ": use checkpoint: {resume: newest} to go on from there, or another folder"));
        return;
      }
    }
    CheckSpace(directory, existing.string());
  }

  // Room for one checkpoint: the weights and AdamW's two moments.
  void CheckSpace(const std::string& directory, const std::string& existing) {
    for (const v1::Violation& violation : Validate(spec_)) {
      if (absl::StartsWith(violation.path(), "model")) {
        return;  // nothing can be counted of such a model
      }
    }
    const auto parameters = static_cast<double>(model::NumParameters(ModelConfigOf(spec_.model())));
    const double element = spec_.precision().compute() == v1::COMPUTE_TYPE_FP64 ? 8 : 4;
    const double needed = 3 * element * parameters;
    struct statvfs space;
    if (statvfs(existing.c_str(), &space) != 0) {
      Refuse("checkpoint.directory", directory, "a folder whose free space is known",
             absl::StrCat("statvfs: ", strerror(errno)));
      return;
    }
    const double free = static_cast<double>(space.f_bavail) * space.f_frsize;
    if (free < needed) {
      Refuse("checkpoint.directory", directory,
             absl::StrCat("a folder with room for one checkpoint, ", Megabytes(needed)),
             absl::StrCat("free are ", Megabytes(free), ": make room, or use another folder"));
    }
  }

  static std::string Megabytes(double bytes) {
    return absl::StrCat(static_cast<int64_t>(bytes / 1e6), " MB");
  }

  void CheckResume(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      const bool exists = std::filesystem::exists(path, error);
      Refuse("checkpoint.resume", path, "newest, none, or the folder of one checkpoint",
             exists  ? "it is not a folder"
             : error ? error.message()
                     : "no such folder");
    }
  }

  const v1::JobSpec& spec_;
  const BeforePath& before_;
  std::vector<v1::Violation> violations_;
};

}  // namespace

std::vector<std::string> DataPaths(const std::string& path) { return data::PathsReadFor(path); }

std::vector<v1::Violation> CheckFiles(const v1::JobSpec& resolved, const BeforePath& before) {
  return FileChecker(resolved, before).Run();
}

std::vector<v1::Violation> CheckFiles(const v1::JobSpec& resolved) {
  return CheckFiles(resolved, [](const std::string&, const std::string&) { return true; });
}

}  // namespace tandem::jobspec
