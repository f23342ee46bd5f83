// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/styled_line.h"

#include <algorithm>
#include <iterator>

#include "cli/terminal/display_text.h"

namespace tandem::cli {
namespace {

// Indexed by Style.
constexpr const char* kSequences[] = {"", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[36m", "\x1b[31m"};

}  // namespace

StyledLine& StyledLine::Add(std::string text, Style style) {
  if (!text.empty()) {
    spans_.push_back({std::move(text), style});
  }
  return *this;
}

StyledLine& StyledLine::Append(const StyledLine& other) {
  spans_.insert(spans_.end(), other.spans_.begin(), other.spans_.end());
  return *this;
}

StyledLine& StyledLine::PadTo(int width) {
  return Add(std::string(static_cast<size_t>(std::max(0, width - this->width())), ' '));
}

int StyledLine::width() const {
  int width = 0;
  for (const Span& span : spans_) {
    width += DisplayWidth(span.text);
  }
  return width;
}

std::string StyledLine::Render(int width, bool color, bool unicode) const {
  std::string out;
  int left = width > 0 ? width : this->width();
  for (const Span& span : spans_) {
    const std::string text = Cut(span.text, left, unicode);
    const std::string sequence = color ? kSequences[static_cast<size_t>(span.style)] : "";
    out += sequence + text + (sequence.empty() ? "" : "\x1b[0m");
    left -= DisplayWidth(span.text);
    if (left <= 0) {
      break;
    }
  }
  return out;
}

StyledLine Fit(const std::vector<Part>& parts, int width, int gap) {
  std::vector<Part> kept = parts;
  std::erase_if(kept, [](const Part& part) { return part.line.empty(); });
  const auto total = [&] {
    int sum = 0;
    for (const Part& part : kept) {
      sum += part.line.width() + gap;
    }
    return sum - gap;
  };
  while (kept.size() > 1 && total() > width) {
    // The last part of those with the lowest priority.
    const auto victim = std::min_element(
        kept.rbegin(), kept.rend(), [](const Part& a, const Part& b) { return a.priority < b.priority; });
    kept.erase(std::prev(victim.base()));
  }
  StyledLine line;
  for (const Part& part : kept) {
    if (!line.empty()) {
      line.PadTo(line.width() + gap);
    }
    line.Append(part.line);
  }
  return line;
}

}  // namespace tandem::cli
