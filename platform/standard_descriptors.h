// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"

namespace tandem::platform {

// What a closed standard descriptor becomes: kSilent: input that is at its end, and output that is not read.
// kUnusable: what still fails to be read or written.
enum class ClosedDescriptor { kSilent, kUnusable };

// Opens /dev/null as each of standard input, output and error that whoever started this program has closed.
// Else the next files that it opens get these numbers, and a line of its log, or a library's complaint, goes
// into one of them. Call it in the first line of main. Returns an error where /dev/null cannot be opened.
absl::Status OpenClosedStandardDescriptors(ClosedDescriptor becomes);

}  // namespace tandem::platform
