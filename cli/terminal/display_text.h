// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem::cli {

// Fits text into the columns of a terminal. All text is UTF-8.

// Makes `text` fit for one line: control characters and invalid UTF-8 become \xNN, \n, \t.
std::string Escape(absl::string_view text);

// Returns how many columns `text`, which has no control characters, takes on a terminal.
int DisplayWidth(absl::string_view text);

// Returns the first `width` columns of `text`, with an ellipsis at the end if something was cut. Requires
// width >= 0.
std::string Cut(absl::string_view text, int width, bool unicode);

// Returns the last `width` columns of `text`, with an ellipsis at the beginning if something was cut.
std::string CutLeft(absl::string_view text, int width, bool unicode);

// Fills `text` with spaces to `width` columns, at the right or at the left.
std::string PadRight(absl::string_view text, int width);
std::string PadLeft(absl::string_view text, int width);

// Breaks `text` at spaces into lines no wider than `width` (0: no limit), each of which starts with `indent`.
// Breaks words that are too wide.
std::vector<std::string> Wrap(absl::string_view text, int width, absl::string_view indent);

// Makes a line of a log readable: our own JSON lines become "12:00:01 error trainer: text  key=value"; any
// other line stays as it is. Escaped, without newline.
std::string ReadableLogLine(absl::string_view line);

}  // namespace tandem::cli
