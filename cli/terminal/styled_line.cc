// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/styled_line.h"

#include <algorithm>
#include <utility>

#include "cli/terminal/display_text.h"

namespace tandem::cli {
namespace {

const char* Sequence(Style style) {
  switch (style) {
    case Style::kPlain:
      return "";
    case Style::kStrong:
      return "\x1b[1m";
    case Style::kDim:
      return "\x1b[2m";
    case Style::kGood:
      return "\x1b[32m";
    case Style::kBusy:
      return "\x1b[36m";
    case Style::kBad:
      return "\x1b[31m";
  }
  return "";
}

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
    const std::string sequence = color ? Sequence(span.style) : "";
    out += sequence + text + (sequence.empty() ? "" : "\x1b[0m");
    left -= DisplayWidth(span.text);
    if (left <= 0) {
      break;
    }
  }
  return out;
}

StyledLine Fit(const std::vector<Part>& parts, int width, int gap) {
  std::vector<const Part*> kept;
  for (const Part& part : parts) {
    if (!part.line.empty()) {
      kept.push_back(&part);
    }
  }
  const auto total = [&] {
    int sum = 0;
    for (const Part* part : kept) {
      sum += part->line.width() + gap;
    }
    return sum - gap;
  };
  while (kept.size() > 1 && total() > width) {
    // The last of those with the lowest priority.
    auto victim = kept.begin();
    for (auto it = kept.begin(); it != kept.end(); ++it) {
      if ((*it)->priority <= (*victim)->priority) {
        victim = it;
      }
    }
    kept.erase(victim);
  }
  StyledLine line;
  for (const Part* part : kept) {
    if (!line.empty()) {
      line.PadTo(line.width() + gap);
    }
    line.Append(part->line);
  }
  return line;
}

}  // namespace tandem::cli
