// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem::platform {

// What a user can do about an errno, such as "raise the limit of open files (ulimit -n)"; empty if the errno
// does not tell. EAGAIN is read as the failure to start a process or thread.
absl::string_view RemedyOf(int error);

// True for the errnos by which a file system says that it does not support an operation at all.
bool MeansNotSupported(int error);

// "`what`: Too many open files; raise the limit of open files (ulimit -n)", in one line. The code is that of
// absl::ErrnoToStatus.
absl::Status SystemError(int error, absl::string_view what);

}  // namespace tandem::platform
