// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem::cli {

// A terminal as far as the live view needs one: text, CR, LF, and the escapes that move up (A), go home (H),
// and clear a line (K) or the screen (J). A cell is a UTF-8 character of width 1.
class TerminalModel {
 public:
  // kWrapAgain: lines are wrapped to the new width, and what left at the top comes back when there is room,
  // as with VTE, kitty or Windows. kCut: lines are cut, as with xterm.
  enum class OnResize { kWrapAgain, kCut };

  TerminalModel(int columns, int rows, OnResize on_resize)
      : columns_(columns), rows_(rows), on_resize_(on_resize), lines_(1) {}

  void Write(absl::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\r') {
        column_ = 0;
      } else if (text[i] == '\n') {
        ++line_;
        column_ = 0;
        Grow();
      } else if (text[i] == '\x1b') {
        int count = 0;
        for (i += 2; text[i] >= '0' && text[i] <= '9'; ++i) {
          count = 10 * count + (text[i] - '0');
        }
        Escape(text[i], count);
      } else {
        std::string cell(1, text[i]);
        while (i + 1 < text.size() && (text[i + 1] & 0xc0) == 0x80) {
          cell += text[++i];
        }
        Type(cell);
      }
    }
  }

  void Resize(int columns, int rows) {
    if (on_resize_ == OnResize::kCut) {
      for (Line& line : lines_) {
        line.cells.resize(std::min<size_t>(line.cells.size(), columns));
        line.goes_on = false;
      }
      top_ = std::max(top_, line_ - rows + 1);  // nothing comes back
    } else {
      WrapAgain(columns);
      top_ = std::max<int>(0, static_cast<int>(lines_.size()) - rows);
    }
    columns_ = columns;
    rows_ = rows;
    column_ = std::min(column_, columns_ - 1);
  }

  // What can be seen, without blanks at the ends of lines, and without empty lines.
  std::vector<std::string> Screen() const {
    std::vector<std::string> out;
    for (int i = top_; i < std::min<int>(top_ + rows_, lines_.size()); ++i) {
      std::string text;
      for (const std::string& cell : lines_[i].cells) {
        text += cell;
      }
      text.erase(text.find_last_not_of(' ') + 1);
      if (!text.empty()) {
        out.push_back(text);
      }
    }
    return out;
  }

 private:
  struct Line {
    std::vector<std::string> cells;
    bool goes_on = false;  // the next line is a part of this one
  };

  void Grow() {
    if (line_ >= static_cast<int>(lines_.size())) {
      lines_.resize(line_ + 1);
    }
    top_ = std::max(top_, line_ - rows_ + 1);
  }

  void Type(const std::string& cell) {
    if (column_ >= columns_) {
      lines_[line_].goes_on = true;
      ++line_;
      column_ = 0;
      Grow();
    }
    std::vector<std::string>& cells = lines_[line_].cells;
    cells.resize(std::max<size_t>(cells.size(), column_ + 1), " ");
    cells[column_++] = cell;
  }

  void Escape(char command, int count) {
    switch (command) {
      case 'A':
        line_ = std::max(top_, line_ - std::max(1, count));
        break;
      case 'H':
        line_ = top_;
        column_ = 0;
        break;
      case 'K':
        lines_[line_].cells.resize(std::min<size_t>(lines_[line_].cells.size(), column_));
        lines_[line_].goes_on = false;
        break;
      case 'J':
        if (count == 2) {
          lines_.resize(top_);
          lines_.resize(std::max(line_, top_) + 1);
        } else {
          lines_.resize(line_ + 1);
          Escape('K', 0);
        }
        break;
      default:
        break;  // colours
    }
  }

  void WrapAgain(int columns) {
    std::deque<Line> wrapped;
    int cursor = 0;
    for (size_t i = 0; i < lines_.size(); ++i) {
      Line whole = lines_[i];
      const bool here = static_cast<int>(i) == line_;
      bool has_cursor = here;
      while (whole.goes_on && i + 1 < lines_.size()) {
        ++i;
        has_cursor = has_cursor || static_cast<int>(i) == line_;
        whole.cells.insert(whole.cells.end(), lines_[i].cells.begin(), lines_[i].cells.end());
        whole.goes_on = lines_[i].goes_on;
      }
      for (size_t at = 0; at == 0 || at < whole.cells.size(); at += columns) {
        Line& part = wrapped.emplace_back();
        const size_t end = std::min<size_t>(whole.cells.size(), at + columns);
        part.cells.assign(whole.cells.begin() + at, whole.cells.begin() + end);
        part.goes_on = end < whole.cells.size();
      }
      if (has_cursor) {
        cursor = static_cast<int>(wrapped.size()) - 1;
      }
    }
    lines_ = std::move(wrapped);
    line_ = cursor;
  }

  int columns_;
  int rows_;
  const OnResize on_resize_;
  std::deque<Line> lines_;  // those that left at the top are the first
  int top_ = 0;             // the first that can be seen
  int line_ = 0;            // the cursor's
  int column_ = 0;
};

}  // namespace tandem::cli
