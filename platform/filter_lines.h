// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tandem::platform {

// Rewrites a text file so that it holds only the lines that `keep` wants (given without their ends), in their
// order. Dropped too: a last line without an end, which a crash has torn, and lines of more than
// `most_line_bytes`. Reads and writes piece by piece: the file may be larger than memory. After a crash it
// holds the old content or the new one. Errors are those of FileError (regular_file.h); NotFound if there
// is no file.
absl::Status FilterLines(const std::string& path, size_t most_line_bytes,
                         const std::function<bool(std::string_view line)>& keep);

}  // namespace tandem::platform
