// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tandem::cli {

// Rows under headings, for people. Two spaces separate columns.
class Table {
 public:
  struct Column {
    // NOLINTBEGIN(google-explicit-constructor): a heading is a column.
    Column(const char* heading_in) : heading(heading_in) {}
    Column(std::string heading_in) : heading(std::move(heading_in)) {}
    // NOLINTEND(google-explicit-constructor)

    std::string heading;
    bool right = false;     // aligned, as numbers are
    bool shrinks = false;   // is cut first if the table is wider than the terminal
    bool keep_end = false;  // cut at the left: parameter names differ at their end
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Requires one cell per column. Cells are escaped.
  void Add(std::vector<std::string> cells);

  // Returns the lines, each with "\n". width 0: as wide as the content, for output that is not a terminal;
  // otherwise no line is wider.
  std::string Render(int width, bool unicode) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

Table::Column Right(Table::Column column);
Table::Column Shrinking(Table::Column column);
Table::Column ShrinkingLeft(Table::Column column);  // and keep_end

}  // namespace tandem::cli
