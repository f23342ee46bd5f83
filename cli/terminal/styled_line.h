// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tandem::cli {

enum class Style { kPlain, kStrong, kDim, kGood, kBusy, kBad };

struct Span {
  std::string text;  // no control characters
  Style style = Style::kPlain;
};

// One line of a display. It gets its escape sequences only in Render, so that its width is known before.
class StyledLine {
 public:
  StyledLine() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): plain text is a line.
  StyledLine(std::string text, Style style = Style::kPlain) { Add(std::move(text), style); }

  StyledLine& Add(std::string text, Style style = Style::kPlain);
  StyledLine& Append(const StyledLine& other);
  StyledLine& PadTo(int width);
  int width() const;
  bool empty() const { return spans_.empty(); }

  // Returns at most `width` columns (0: no limit), with colours or without, and no newline.
  std::string Render(int width, bool color, bool unicode) const;

 private:
  std::vector<Span> spans_;
};

// A part of a line. Parts are left out if the line gets too wide, those of lower priority first.
struct Part {
  StyledLine line;
  int priority = 0;
};

// Returns the parts that fit into `width`, in order, `gap` spaces apart; at least the part of the highest
// priority.
StyledLine Fit(const std::vector<Part>& parts, int width, int gap);

}  // namespace tandem::cli
