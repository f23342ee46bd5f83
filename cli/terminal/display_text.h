// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem::cli {

// Text for a terminal of so many columns. All text is UTF-8.

// `text` as it can be shown on one line: control characters and invalid UTF-8 become \xNN, \n, \t.
std::string Escape(absl::string_view text);

// Columns that a terminal uses for `text`, which holds no control characters.
int DisplayWidth(absl::string_view text);

// The first columns of `text`, ending in an ellipsis if something was cut. Requires width >= 0.
std::string Cut(absl::string_view text, int width, bool unicode);

// The last columns of `text`, starting with an ellipsis if something was cut.
std::string CutLeft(absl::string_view text, int width, bool unicode);

// `text` filled with blanks to `width` columns, at the right or at the left.
std::string PadRight(absl::string_view text, int width);
std::string PadLeft(absl::string_view text, int width);

// Breaks at blanks so that no line is wider than `width`; every line starts with `indent`. Words that are too
// wide are broken. width 0: no limit.
std::vector<std::string> Wrap(absl::string_view text, int width, absl::string_view indent);

// A line of a log as a person reads it. Our own JSON lines become "12:00:01 error trainer: text  key=value";
// any other line stays as it is. Escaped, without newline.
std::string ReadableLogLine(absl::string_view line);

}  // namespace tandem::cli
