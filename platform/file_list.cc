// SPDX-License-Identifier: Apache-2.0
#include "platform/file_list.h"

#include <errno.h>
#include <glob.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/regular_file.h"
#include "platform/status_macros.h"

namespace tandem::platform {
namespace {

// "cannot read /data/x: Permission denied"
absl::Status ErrnoStatus(int error, const std::string& what, const std::string& path) {
  const std::string message = absl::StrCat(what, " ", path, ": ", strerror(error));
  if (error == ENOENT || error == ENOTDIR) {
    return absl::NotFoundError(message);
  }
  return error == EACCES ? absl::PermissionDeniedError(message) : absl::InvalidArgumentError(message);
}

struct Found {
  std::vector<std::string> files;
  int64_t num_skipped = 0;
};

bool IsHidden(std::string_view name) { return name.starts_with('.') || name.ends_with('~'); }

// Appends every regular file below `folder`.
absl::Status ListFolder(const std::string& folder, Found& found) {
  std::vector<std::string> pending = {folder};
  while (!pending.empty()) {
    const std::string current = std::move(pending.back());
    pending.pop_back();
    std::error_code error;
    std::filesystem::directory_iterator entry(current, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (IsHidden(name)) {
        ++found.num_skipped;
        continue;
      }
      std::string path = absl::StrCat(current, current.ends_with('/') ? "" : "/", name);
      struct stat link_info;
      struct stat info;
      if (lstat(path.c_str(), &link_info) != 0 || stat(path.c_str(), &info) != 0) {
        if (errno == ENOENT || errno == ELOOP) {
          continue;  // a link to nothing is not a file
        }
        return ErrnoStatus(errno, "cannot look at", path);
      }
      if (S_ISREG(info.st_mode)) {
        found.files.push_back(std::move(path));
      } else if (S_ISDIR(link_info.st_mode)) {
        pending.push_back(std::move(path));
      }
    }
    if (error) {
      return ErrnoStatus(error.value(), "cannot list the folder", current);
    }
  }
  return absl::OkStatus();
}

// Appends the files for which one existing path stands.
absl::Status ListPath(const std::string& path, const struct stat& info, Found& found) {
  if (S_ISDIR(info.st_mode)) {
    return ListFolder(path, found);
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is ", FileKind(info.st_mode), ", neither a file nor a folder"));
  }
  found.files.push_back(path);
  return absl::OkStatus();
}

absl::Status ListGlob(const std::string& pattern, Found& found) {
  if (pattern.find("**") != std::string::npos) {
    return absl::InvalidArgumentError("** is not supported; name the folder to take every file below it");
  }
  struct Matches {
    glob_t glob = {};
    ~Matches() { globfree(&glob); }
  } matches;
  const int rc = glob(pattern.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &matches.glob);
  if (rc == GLOB_NOMATCH) {
    return absl::NotFoundError("nothing matches");
  }
  if (rc == GLOB_ABORTED) {
    return absl::PermissionDeniedError("a folder that the pattern goes through cannot be listed");
  }
  if (rc != 0) {
    return absl::InvalidArgumentError("too many matches");
  }
  for (size_t i = 0; i < matches.glob.gl_pathc; ++i) {
    const std::string path = matches.glob.gl_pathv[i];
    if (path.ends_with('~') && !pattern.ends_with('~')) {  // a wildcard matches no leading '.'
      ++found.num_skipped;
      continue;
    }
    struct stat info;
    if (stat(path.c_str(), &info) != 0) {
      if (errno == ENOENT || errno == ELOOP) {
        continue;  // a link to nothing
      }
      return ErrnoStatus(errno, "cannot look at", path);
    }
    TANDEM_RETURN_IF_ERROR(ListPath(path, info, found));
  }
  return absl::OkStatus();
}

}  // namespace

bool HasGlobCharacters(std::string_view pattern) {
  return pattern.find_first_of("*?[") != std::string_view::npos;
}

absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& pattern, int64_t* num_skipped) {
  if (pattern.empty()) {
    return absl::InvalidArgumentError("the path is empty");
  }
  if (pattern.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("the path holds a NUL character");
  }
  Found found;
  struct stat info;
  absl::Status status;
  bool folder = false;
  if (stat(pattern.c_str(), &info) == 0) {
    folder = S_ISDIR(info.st_mode);
    status = ListPath(pattern, info, found);
  } else if ((errno == ENOENT || errno == ENOTDIR) && HasGlobCharacters(pattern)) {
    status = ListGlob(pattern, found);
  } else if (errno == ENOENT || errno == ENOTDIR) {
    status = absl::NotFoundError("no such file or folder");
  } else {
    status = errno == EACCES ? absl::PermissionDeniedError(strerror(errno))
                             : absl::InvalidArgumentError(strerror(errno));
  }
  TANDEM_RETURN_IF_ERROR(status);
  std::vector<std::string> files = std::move(found.files);
  if (files.empty()) {
    return absl::NotFoundError(
        absl::StrCat(folder ? "the folder holds no file" : "what matches holds no file",
                     found.num_skipped > 0 ? " but hidden ones, which are skipped" : ""));
  }
  if (num_skipped != nullptr) {
    *num_skipped = found.num_skipped;
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

}  // namespace tandem::platform
