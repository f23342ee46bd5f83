// SPDX-License-Identifier: Apache-2.0
#include "platform/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "platform/shown_text.h"
#include "platform/status_macros.h"

namespace tandem::platform {
namespace {

absl::Status WrongKind(absl::string_view operation, const std::string& path, mode_t mode) {
  return absl::InvalidArgumentError(absl::StrCat(operation, " ", Shown(path, std::string::npos), ": it is ",
                                                 FileKind(mode), ", not a regular file"));
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) {
      close(fd_);
    }
    fd_ = other.Release();
  }
  return *this;
}

bool LeadsTo(const std::string& path, const Descriptor& file) {
  struct stat there;
  struct stat open;
  return stat(path.c_str(), &there) == 0 && fstat(file.get(), &open) == 0 && there.st_dev == open.st_dev &&
         there.st_ino == open.st_ino;
}

const char* FileKind(mode_t mode) {
  if (S_ISREG(mode)) {
    return "a regular file";
  }
  if (S_ISDIR(mode)) {
    return "a folder";
  }
  if (S_ISFIFO(mode)) {
    return "a FIFO";
  }
  if (S_ISSOCK(mode)) {
    return "a socket";
  }
  return S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : "of an unknown kind";
}

absl::Status FileError(int error, absl::string_view operation, const std::string& path) {
  const absl::Status status =
      absl::ErrnoToStatus(error, absl::StrCat(operation, " ", Shown(path, std::string::npos)));
  switch (error) {
    case ENOTDIR:
    case ELOOP:  // a symbolic link that leads to itself: trying again cannot help
    case ENAMETOOLONG:
      return absl::InvalidArgumentError(status.message());
    case EMFILE:
    case ENFILE:
      return absl::OutOfRangeError(status.message());
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMLINK:
      return absl::ResourceExhaustedError(status.message());
    default:
      break;
  }
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return error == ENOENT ? status : absl::UnavailableError(status.message());
    case absl::StatusCode::kAlreadyExists:
      return error == EEXIST ? status : absl::UnavailableError(status.message());
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kResourceExhausted:  // out of memory
    case absl::StatusCode::kOutOfRange:
      return absl::UnavailableError(status.message());
    default:
      return status;
  }
}

absl::string_view RemedyOf(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kResourceExhausted:
      return "make room on that file system";
    case absl::StatusCode::kOutOfRange:
      return "raise the limit of open files (ulimit -n)";
    case absl::StatusCode::kPermissionDenied:
      return "give this user the right to it, or mount it writable where it is read-only";
    default:
      return "";
  }
}

namespace {

absl::StatusOr<Descriptor> Open(absl::string_view operation, const std::string& path, int flags,
                                mode_t mode) {
  int fd = -1;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) {
    return FileError(errno, operation, path);
  }
  return Descriptor(fd);
}

}  // namespace

absl::StatusOr<Descriptor> OpenRegularFile(const std::string& path, int flags, mode_t mode) {
  const absl::string_view operation = (flags & O_TRUNC) != 0 ? "create" : "open";
  struct stat info;
  // Checked before the open, which has effects on some devices and reports little about a socket.
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return WrongKind(operation, path, info.st_mode);
  }
  TANDEM_ASSIGN_OR_RETURN(Descriptor file, Open(operation, path, flags | O_NONBLOCK | O_NOCTTY, mode));
  if (fstat(file.get(), &info) != 0) {
    return FileError(errno, "stat", path);
  }
  if (!S_ISREG(info.st_mode)) {
    return WrongKind(operation, path, info.st_mode);
  }
  return file;
}

absl::StatusOr<Descriptor> OpenRegularFileOrPipe(const std::string& path) {
  struct stat info;
  const bool is_pipe = stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode);
  return is_pipe ? Open("open", path, O_RDONLY, 0) : OpenRegularFile(path, O_RDONLY);
}

}  // namespace tandem::platform
