// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::platform {

// Owns a file descriptor, or none, and closes it at the end of the scope. Ignores the error of close(2).
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

// Calls open(2) for a regular file. For a FIFO, a device, a socket or a folder it returns InvalidArgument,
// which says what it is, and unlike open(2) never waits for the other end of a FIFO. Follows symbolic links;
// sets O_CLOEXEC. Other errors are those of FileError.
absl::StatusOr<Descriptor> OpenRegularFile(const std::string& path, int flags, mode_t mode = 0);

// Opens a regular file or a pipe, such as a shell's <(...), for reading. As open(2) does, it waits until a
// process opens the pipe for writing. Any other kind of file is refused as by OpenRegularFile.
absl::StatusOr<Descriptor> OpenRegularFileOrPipe(const std::string& path);

// Whether `path` leads to the open `file`; false if the path cannot be inspected.
bool LeadsTo(const std::string& path, const Descriptor& file);

// The kind of a file with this st_mode: "a FIFO", "a folder", ...
const char* FileKind(mode_t mode);

// "`operation` `path`: No space left on device", in one line, with the control characters of the path
// escaped. The code is NotFound for ENOENT, AlreadyExists for EEXIST, ResourceExhausted if the disk is full,
// OutOfRange if too many files are open (EMFILE, ENFILE), and InvalidArgument for a name that no file can
// have or a path through something that is no folder (ENOTDIR). It is never FailedPrecondition or Aborted,
// even for ENOTEMPTY and ESTALE, because callers return these two codes with meanings of their own.
absl::Status FileError(int error, absl::string_view operation, const std::string& path);

// What a user can do about an error of FileError, such as "make room on that file system"; empty if its code
// does not tell.
absl::string_view RemedyOf(const absl::Status& error);

}  // namespace tandem::platform
