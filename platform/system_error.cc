// SPDX-License-Identifier: Apache-2.0
#include "platform/system_error.h"

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace tandem::platform {

absl::string_view RemedyOf(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "make room on that file system";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case EAGAIN:
      return "raise the limit of processes (ulimit -u, TasksMax of systemd, pids of a container)";
    case ENOMEM:
      return "free memory on that machine";
    case EACCES:
    case EPERM:
      return "give this user the right to it";
    case EROFS:
      return "mount it writable";
    default:
      return "";
  }
}

bool MeansNotSupported(int error) { return error == EINVAL || error == ENOTSUP || error == ENOSYS; }

absl::Status SystemError(int error, absl::string_view what) {
  const absl::Status status = absl::ErrnoToStatus(error, what);
  const absl::string_view remedy = RemedyOf(error);
  return absl::Status(status.code(), absl::StrCat(status.message(), remedy.empty() ? "" : "; ", remedy));
}

}  // namespace tandem::platform
