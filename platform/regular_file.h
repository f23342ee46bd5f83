// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::platform {

// Owns an open file, if it has one, and closes it at the end of the scope. The error of close(2) is ignored.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;

  int get() const { return fd_; }  // -1 if there is no file
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// open(2), for regular files only: a FIFO, a device, a socket or a folder at `path` is refused with its name
// (InvalidArgument). Never waits, as open(2) does for the other end of a FIFO. Follows symbolic links; sets
// O_CLOEXEC. Other errors are those of FileError.
absl::StatusOr<Descriptor> OpenRegularFile(const std::string& path, int flags, mode_t mode = 0);

// For reading: a pipe too, as a shell's <(...) names one. As everywhere, opening one without a writer
// waits until a process opens it for writing. Anything else is refused as above.
absl::StatusOr<Descriptor> OpenRegularFileOrPipe(const std::string& path);

// Whether `path` leads to what is open as `file`; false if it cannot be looked at.
bool LeadsTo(const std::string& path, const Descriptor& file);

// "a FIFO", "a folder", ...: what st_mode says.
const char* FileKind(mode_t mode);

// "`operation` `path`: No space left on device", in one line: control characters of the path are escaped.
// NotFound means ENOENT, AlreadyExists EEXIST, ResourceExhausted that there is no room, OutOfRange that as
// many files are open as may be (EMFILE, ENFILE), and InvalidArgument that what has the name is not what it
// should be (ENOTDIR), or that no file can have it. Never FailedPrecondition nor Aborted: callers give these
// meanings of their own, and a full folder (ENOTEMPTY) or a stale handle (ESTALE) must not pass for them.
absl::Status FileError(int error, absl::string_view operation, const std::string& path);

// "make room on that file system": what to do about an error of FileError, if its code says that; otherwise
// empty.
absl::string_view RemedyOf(const absl::Status& error);

}  // namespace tandem::platform
