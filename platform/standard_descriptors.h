// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"

namespace tandem::platform {

// Opens /dev/null as each of standard input, output and error that whoever started this daemon has closed.
// Else the next files that it opens get these numbers, and a line of its log, or a library's complaint, goes
// into one of them. Call it in the first line of main. Returns an error where /dev/null cannot be opened.
absl::Status OpenClosedStandardDescriptors();

}  // namespace tandem::platform
