#include "platform/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::platform {
namespace {

absl::Status Failed(absl::string_view operation, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(operation, " ", path));
}

// Closes at the end of the scope, where the error of close(2) does not matter.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

int Open(const std::string& path, int flags, mode_t mode = 0) {
  int fd = -1;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

class MachineFiles final : public Files {
 public:
  absl::StatusOr<std::string> Read(const std::string& path) override {
    const Descriptor fd(Open(path, O_RDONLY));
    if (fd.get() < 0) return Failed("open", path);
    std::string content;
    char buffer[1 << 16];
    while (true) {
      const ssize_t got = read(fd.get(), buffer, sizeof(buffer));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Failed("read", path);
      if (got == 0) return content;
      content.append(buffer, static_cast<size_t>(got));
    }
  }

  absl::Status Write(const std::string& path, std::string_view content) override {
    Descriptor fd(Open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644));
    if (fd.get() < 0) return Failed("create", path);
    while (!content.empty()) {
      const ssize_t put = write(fd.get(), content.data(), content.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return Failed("write", path);
      content.remove_prefix(static_cast<size_t>(put));
    }
    if (fsync(fd.get()) != 0) return Failed("fsync", path);
    if (close(fd.Release()) != 0) return Failed("close", path);
    return absl::OkStatus();
  }

  absl::Status SyncFolder(const std::string& path) override {
    const Descriptor fd(Open(path, O_RDONLY | O_DIRECTORY));
    if (fd.get() < 0) return Failed("open folder", path);
    if (fsync(fd.get()) != 0) return Failed("fsync folder", path);
    return absl::OkStatus();
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) != 0) return Failed("rename", absl::StrCat(from, " to ", to));
    return absl::OkStatus();
  }

  absl::Status Publish(const std::string& from, const std::string& to) override {
    const std::string what = absl::StrCat(from, " as ", to);
    if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
      return absl::OkStatus();
    }
    if (errno != EINVAL && errno != ENOSYS) return Failed("publish", what);
    // A file system without the flag, such as NFS. There rename(2) replaces no folder but an empty one, and
    // link(2) nothing.
    std::error_code error;
    if (std::filesystem::is_directory(from, error)) {
      if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
      if (errno == ENOTEMPTY || errno == ENOTDIR) errno = EEXIST;
      return Failed("publish", what);
    }
    if (link(from.c_str(), to.c_str()) != 0 || unlink(from.c_str()) != 0) return Failed("publish", what);
    return absl::OkStatus();
  }

  absl::Status CreateFolders(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("create folder ", path));
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    DIR* const dir = opendir(folder.c_str());
    if (dir == nullptr) return Failed("list", folder);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* const entry = readdir(dir)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
      errno = 0;
    }
    const int error = errno;
    closedir(dir);
    if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("list ", folder));
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status RemoveAll(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("remove ", path));
    return absl::OkStatus();
  }

  absl::Status Touch(const std::string& path) override {
    if (utimensat(AT_FDCWD, path.c_str(), nullptr, 0) != 0) return Failed("touch", path);
    return absl::OkStatus();
  }

  absl::StatusOr<absl::Time> ModificationTime(const std::string& path) override {
    // NFS asks the server when a file is opened, and answers stat(2) from its cache.
    const Descriptor fd(Open(path, O_RDONLY | O_NONBLOCK));
    if (fd.get() < 0) return Failed("open", path);
    struct stat info;
    if (fstat(fd.get(), &info) != 0) return Failed("stat", path);
    return absl::TimeFromTimespec(info.st_mtim);
  }
};

}  // namespace

Files& SystemFiles() {
  static MachineFiles* const files = new MachineFiles;
  return *files;
}

absl::Status ReplaceFile(Files& files, const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp";
  if (const absl::Status status = files.Write(temporary, content); !status.ok()) {
    files.RemoveAll(temporary)
        .IgnoreError();  // a full disk: give the space back; the first error is the one to tell
    return status;
  }
  if (const absl::Status status = files.Rename(temporary, path); !status.ok()) return status;
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return files.SyncFolder(folder.empty() ? "." : folder);
}

}  // namespace tandem::platform
