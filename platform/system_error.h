// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem::platform {

// What a user can do about an errno of a system call: "raise the limit of open files (ulimit -n)"; empty
// if it does not say that. EAGAIN counts as what a new process or thread gets.
absl::string_view RemedyOf(int error);

// True for what a file system answers that does not have a call at all.
bool MeansNotSupported(int error);

// "`what`: Too many open files; raise the limit of open files (ulimit -n)", in one line; a code as that of
// absl::ErrnoToStatus.
absl::Status SystemError(int error, absl::string_view what);

}  // namespace tandem::platform
