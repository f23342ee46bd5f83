// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tandem::platform {

// Rewrites a text file so that it keeps only the lines for which `keep` returns true; `line` has no newline.
// Also drops a last line without a newline, which a crash left incomplete, and lines longer than
// `most_line_bytes`. Reads and writes in pieces, so the file may be larger than memory. After a crash the
// file holds either the old content or the new one. Errors are those of FileError (regular_file.h); NotFound
// if there is no file.
absl::Status FilterLines(const std::string& path, size_t most_line_bytes,
                         const std::function<bool(std::string_view line)>& keep);

}  // namespace tandem::platform
