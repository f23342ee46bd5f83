// SPDX-License-Identifier: Apache-2.0
#include "platform/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/log.h"
#include "platform/regular_file.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace tandem::platform {
namespace {

absl::Status Failed(absl::string_view operation, const std::string& path) {
  return FileError(errno, operation, path);
}

// A file that is being written. Writing to the disk starts before the sync, so that the sync has about
// kSyncBytes left at most.
class SyncedFile final : public OutputFile {
 public:
  SyncedFile(Descriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  absl::Status Write(int64_t begin, std::string_view content) override {
    if (unsynced_ >= kSyncBytes) {
      if (fdatasync(file_.get()) != 0) {
        return Failed("fsync", path_);
      }
      unsynced_ = 0;
    }
    while (!content.empty()) {
      const ssize_t put = pwrite(file_.get(), content.data(), content.size(), begin);
      if (put < 0 && errno == EINTR) {
        continue;
      }
      if (put < 0) {
        return Failed("write", path_);
      }
      content.remove_prefix(static_cast<size_t>(put));
      begin += put;
      unsynced_ += put;
      unstarted_ += put;
    }
    if (unstarted_ >= kFilePartBytes) {  // a hint: starts writing now instead of at the sync
      static_cast<void>(sync_file_range(file_.get(), 0, 0, SYNC_FILE_RANGE_WRITE));
      unstarted_ = 0;
    }
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    if (fsync(file_.get()) != 0) {
      return Failed("fsync", path_);
    }
    return close(file_.Release()) == 0 ? absl::OkStatus() : Failed("close", path_);
  }

 private:
  Descriptor file_;
  const std::string path_;
  int64_t unsynced_ = 0;
  int64_t unstarted_ = 0;  // the part of it whose writing was not started
};

class MachineFiles final : public Files {
 public:
  absl::StatusOr<std::string> Read(const std::string& path) override {
    TANDEM_ASSIGN_OR_RETURN(const Descriptor file, OpenRegularFile(path, O_RDONLY));
    struct stat info;
    if (fstat(file.get(), &info) != 0) {
      return Failed("stat", path);
    }
    return ReadFrom(file, path, 0, info.st_size, /*most_bytes=*/std::numeric_limits<int64_t>::max());
  }

  absl::StatusOr<std::string> ReadRange(const std::string& path, int64_t begin, int64_t most_bytes) override {
    TANDEM_ASSIGN_OR_RETURN(const Descriptor file, OpenRegularFile(path, O_RDONLY));
    return ReadFrom(file, path, begin, /*expected=*/most_bytes, most_bytes);
  }

  absl::Status Write(const std::string& path, std::string_view content) override {
    return WriteParts(path, [&]() -> absl::StatusOr<std::string_view> { return std::exchange(content, {}); });
  }

  absl::Status WriteParts(const std::string& path,
                          const std::function<absl::StatusOr<std::string_view>()>& next) override {
    TANDEM_ASSIGN_OR_RETURN(Descriptor opened, OpenRegularFile(path, O_WRONLY | O_CREAT | O_TRUNC, 0644));
    SyncedFile file(std::move(opened), path);
    for (int64_t begin = 0;;) {
      TANDEM_ASSIGN_OR_RETURN(const std::string_view part, next());
      if (part.empty()) {
        return file.Finish();
      }
      TANDEM_RETURN_IF_ERROR(file.Write(begin, part));
      begin += static_cast<int64_t>(part.size());
    }
  }

  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path, int64_t bytes) override {
    TANDEM_ASSIGN_OR_RETURN(Descriptor file, OpenRegularFile(path, O_WRONLY | O_CREAT | O_TRUNC, 0644));
    if (bytes > 0 && fallocate(file.get(), 0, 0, bytes) != 0) {
      if (!MeansNotSupported(errno)) {
        return Failed("write", path);
      }
      if (ftruncate(file.get(), bytes) != 0) {
        return Failed("write", path);
      }
    }
    return std::make_unique<SyncedFile>(std::move(file), path);
  }

  absl::Status SyncFolder(const std::string& path) override {
    const Descriptor fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd.get() < 0) {
      return Failed("open folder", path);
    }
    if (fsync(fd.get()) == 0) {
      return absl::OkStatus();
    }
    if (!MeansNotSupported(errno)) {
      return Failed("fsync folder", path);
    }
    // The file system keeps the data durable by the files' own fsync, and the names once it writes them by
    // itself.
    if (!warned_of_folders_.exchange(true)) {
      Log(LogLevel::kWarning,
          "the file system of a folder refuses to make it durable (fsync): a power cut may lose the newest "
          "names in it",
          {{"folder", path}});
    }
    return absl::OkStatus();
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) != 0) {
      return Failed("rename", absl::StrCat(from, " to ", to));
    }
    return absl::OkStatus();
  }

  absl::Status Publish(const std::string& from, const std::string& to) override {
    const std::string what = absl::StrCat(from, " as ", to);
    if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
      return absl::OkStatus();
    }
    if (errno != EINVAL && errno != ENOSYS) {
      return Failed("publish", what);
    }
    // The file system has no such flag, as NFS. There rename(2) replaces only empty folders, and link(2)
    // nothing.
    std::error_code error;
    if (std::filesystem::is_directory(from, error)) {
      if (rename(from.c_str(), to.c_str()) == 0) {
        return absl::OkStatus();
      }
      if (errno == ENOTEMPTY || errno == ENOTDIR) {
        errno = EEXIST;
      }
      return Failed("publish", what);
    }
    if (link(from.c_str(), to.c_str()) != 0 || unlink(from.c_str()) != 0) {
      return Failed("publish", what);
    }
    return absl::OkStatus();
  }

  absl::Status CreateFolders(const std::string& path) override {
    std::error_code error;
    std::vector<std::filesystem::path> missing;  // the deepest first
    for (std::filesystem::path folder = path; !folder.empty() && !std::filesystem::exists(folder, error);
         folder = folder.parent_path()) {
      missing.push_back(folder);
    }
    std::filesystem::create_directories(path, error);
    if (error) {
      return FileError(error.value(), "create folder", path);
    }
    for (const std::filesystem::path& folder : missing) {
      const std::string parent = folder.parent_path().string();
      const absl::Status synced = SyncFolder(parent.empty() ? "." : parent);
      // A folder that may be written but not read cannot be opened for a sync.
      if (!synced.ok() && !absl::IsPermissionDenied(synced)) {
        return synced;
      }
    }
    return absl::OkStatus();
  }

  absl::Status CreateFolder(const std::string& path) override {
    if (mkdir(path.c_str(), 0777) == 0) {
      return absl::OkStatus();
    }
    const int error = errno;
    return error == EEXIST && IdOfFolder(path).ok() ? absl::OkStatus()
                                                    : FileError(error, "create folder", path);
  }

  absl::StatusOr<FolderId> IdOfFolder(const std::string& path) override {
    struct statx info = {};
    if (statx(AT_FDCWD, path.c_str(), AT_NO_AUTOMOUNT, STATX_TYPE | STATX_INO | STATX_MNT_ID, &info) != 0) {
      return Failed("look at", path);
    }
    if (!S_ISDIR(info.stx_mode)) {
      return FileError(ENOTDIR, "look at", path);
    }
    const bool has_mount = (info.stx_mask & STATX_MNT_ID) != 0;  // since Linux 5.8
    return FolderId{.device = makedev(info.stx_dev_major, info.stx_dev_minor),
                    .inode = info.stx_ino,
                    .mount = has_mount ? info.stx_mnt_id : 0};
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    DIR* const dir = opendir(folder.c_str());
    if (dir == nullptr) {
      return Failed("list", folder);
    }
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* const entry = readdir(dir)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") {
        names.push_back(name);
      }
      errno = 0;
    }
    const int error = errno;
    closedir(dir);
    if (error != 0) {
      return FileError(error, "list", folder);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status RemoveAll(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    return error ? FileError(error.value(), "remove", path) : absl::OkStatus();
  }

  absl::Status Touch(const std::string& path) override {
    if (utimensat(AT_FDCWD, path.c_str(), nullptr, 0) != 0) {
      return Failed("touch", path);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<absl::Time> ModificationTime(const std::string& path) override {
    TANDEM_ASSIGN_OR_RETURN(const struct stat info, Stat(path));
    return absl::TimeFromTimespec(info.st_mtim);
  }

  absl::StatusOr<int64_t> Size(const std::string& path) override {
    TANDEM_ASSIGN_OR_RETURN(const struct stat info, Stat(path));
    return info.st_size;
  }

 private:
  // expected: the number of bytes, if it is known.
  static absl::StatusOr<std::string> ReadFrom(const Descriptor& file, const std::string& path, int64_t begin,
                                              int64_t expected, int64_t most_bytes) {
    std::string content;
    try {
      content.reserve(static_cast<size_t>(expected));  // growing by doubling would take up to twice that
    } catch (const std::exception&) {
      return absl::ResourceExhaustedError(
          absl::StrCat("read ", path, ": its ", expected, " bytes do not fit in memory"));
    }
    char buffer[1 << 16];
    while (static_cast<int64_t>(content.size()) < most_bytes) {
      const int64_t size = static_cast<int64_t>(content.size());
      const ssize_t got =
          pread(file.get(), buffer,
                static_cast<size_t>(std::min(static_cast<int64_t>(sizeof(buffer)), most_bytes - size)),
                begin + size);
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got < 0) {
        return Failed("read", path);
      }
      if (got == 0) {
        break;
      }
      content.append(buffer, static_cast<size_t>(got));
    }
    return content;
  }

  // Opens the file, because NFS asks the server then, but answers stat(2) from its cache.
  static absl::StatusOr<struct stat> Stat(const std::string& path) {
    TANDEM_ASSIGN_OR_RETURN(const Descriptor file, OpenRegularFile(path, O_RDONLY));
    struct stat info;
    if (fstat(file.get(), &info) != 0) {
      return Failed("stat", path);
    }
    return info;
  }

  std::atomic<bool> warned_of_folders_ = false;
};

}  // namespace

Files& SystemFiles() {
  static MachineFiles* const files = new MachineFiles;
  return *files;
}

absl::StatusOr<std::string> ReadAtMost(Files& files, const std::string& path, int64_t most_bytes) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t bytes, files.Size(path));
  if (bytes > most_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "read ", path, ": it has ", bytes, " bytes, more than such a file can have (", most_bytes, ")"));
  }
  return files.Read(path);
}

absl::Status ReplaceFile(Files& files, const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp";
  if (const absl::Status status = files.Write(temporary, content); !status.ok()) {
    files.RemoveAll(temporary).IgnoreError();  // frees space on a full disk; the first error counts
    return status;
  }
  TANDEM_RETURN_IF_ERROR(files.Rename(temporary, path));
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return files.SyncFolder(folder.empty() ? "." : folder);
}

}  // namespace tandem::platform
