// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace tandem::cli {

// A line of a log as a person reads it. Our own JSON lines become "12:00:01 error trainer: text  key=value";
// any other line stays as it is. Escaped, without newline.
std::string ReadableLogLine(absl::string_view line);

}  // namespace tandem::cli
