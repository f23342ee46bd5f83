// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/table.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/terminal/display_text.h"

namespace tandem::cli {

Table::Column Right(Table::Column column) {
  column.right = true;
  return column;
}

Table::Column Shrinking(Table::Column column) {
  column.shrinks = true;
  return column;
}

Table::Column ShrinkingLeft(Table::Column column) {
  column.shrinks = column.keep_end = true;
  return column;
}

void Table::Add(std::vector<std::string> cells) {
  for (std::string& cell : cells) {
    cell = Escape(cell);
  }
  rows_.push_back(std::move(cells));
}

std::string Table::Render(int width, bool unicode) const {
  std::vector<int> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    int widest = DisplayWidth(columns_[c].heading);
    for (const std::vector<std::string>& row : rows_) {
      widest = std::max(widest, DisplayWidth(row[c]));
    }
    widths.push_back(widest);
  }
  if (width > 0) {
    const int gaps = 2 * (static_cast<int>(columns_.size()) - 1);
    int excess = std::accumulate(widths.begin(), widths.end(), gaps - width);
    for (size_t c = 0; c < columns_.size() && excess > 0; ++c) {
      if (columns_[c].shrinks) {
        const int given = std::clamp(widths[c] - 8, 0, excess);
        widths[c] -= given;
        excess -= given;
      }
    }
  }
  std::string out;
  const auto add_line = [&](const auto& text_of) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string& text = text_of(c);
      const std::string cell = columns_[c].keep_end && &text != &columns_[c].heading
                                   ? CutLeft(text, widths[c], unicode)
                                   : Cut(text, widths[c], unicode);
      absl::StrAppend(&line, c > 0 ? "  " : "",
                      columns_[c].right ? PadLeft(cell, widths[c]) : PadRight(cell, widths[c]));
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&out, width > 0 ? Cut(line, width, unicode) : line, "\n");
  };
  add_line([&](size_t c) -> const std::string& { return columns_[c].heading; });
  for (const std::vector<std::string>& row : rows_) {
    add_line([&](size_t c) -> const std::string& { return row[c]; });
  }
  return out;
}

}  // namespace tandem::cli
