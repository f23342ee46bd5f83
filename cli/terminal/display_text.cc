// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/display_text.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace tandem::cli {
namespace {

struct CodePoint {
  uint32_t value = 0;
  int bytes = 1;
  bool valid = false;
};

CodePoint Decode(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) {
    return {lead, 1, true};
  }
  const int bytes = lead >= 0xF0 && lead < 0xF5 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
  if (bytes == 0 || lead >= 0xF5 || text.size() < static_cast<size_t>(bytes)) {
    return {lead, 1, false};
  }
  uint32_t value = lead & (0x7F >> bytes);
  for (int i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) {
      return {lead, 1, false};
    }
    value = value << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (bytes == 3 && value < 0x800) || (bytes == 4 && value < 0x10000);
  if (overlong || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
    return {lead, 1, false};
  }
  return {value, bytes, true};
}

// C1 controls, and the characters that reorder or hide what stands around them.
bool IsHarmful(uint32_t value) {
  return (value >= 0x80 && value < 0xA0) || (value >= 0x200B && value <= 0x200F) ||
         (value >= 0x202A && value <= 0x202E) || (value >= 0x2060 && value <= 0x2069) || value == 0xFEFF;
}

int Columns(uint32_t value) {
  if (value >= 0x300 && value < 0x370) {
    return 0;  // combining
  }
  const bool wide = (value >= 0x1100 && value < 0x1160) || (value >= 0x2E80 && value < 0xA4D0) ||
                    (value >= 0xAC00 && value < 0xD7A4) || (value >= 0xF900 && value < 0xFB00) ||
                    (value >= 0xFE30 && value < 0xFE70) || (value >= 0xFF00 && value < 0xFF61) ||
                    (value >= 0x1F300 && value < 0x1FB00) || (value >= 0x20000 && value < 0x3FFFE);
  return wide ? 2 : 1;
}

absl::string_view Ellipsis(bool unicode) { return unicode ? "…" : "~"; }

}  // namespace

std::string Escape(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = Decode(text);
    const uint8_t byte = static_cast<uint8_t>(text[0]);
    if (point.valid && point.value == '\n') {
      out += "\\n";
    } else if (point.valid && point.value == '\t') {
      out += "\\t";
    } else if (!point.valid || point.value < 0x20 || point.value == 0x7F) {
      absl::StrAppendFormat(&out, "\\x%02x", byte);
    } else if (IsHarmful(point.value)) {
      absl::StrAppendFormat(&out, "\\u%04x", point.value);
    } else {
      absl::StrAppend(&out, text.substr(0, static_cast<size_t>(point.bytes)));
    }
    text.remove_prefix(static_cast<size_t>(point.bytes));
  }
  return out;
}

int DisplayWidth(absl::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const CodePoint point = Decode(text);
    width += Columns(point.value);
    text.remove_prefix(static_cast<size_t>(point.bytes));
  }
  return width;
}

std::string Cut(absl::string_view text, int width, bool unicode) {
  if (DisplayWidth(text) <= width) {
    return std::string(text);
  }
  if (width <= 0) {
    return "";
  }
  std::string out;
  int used = 0;
  while (!text.empty()) {
    const CodePoint point = Decode(text);
    used += Columns(point.value);
    if (used > width - 1) {
      break;
    }
    absl::StrAppend(&out, text.substr(0, static_cast<size_t>(point.bytes)));
    text.remove_prefix(static_cast<size_t>(point.bytes));
  }
  absl::StrAppend(&out, Ellipsis(unicode));
  return out;
}

std::string CutLeft(absl::string_view text, int width, bool unicode) {
  int excess = DisplayWidth(text) - width;
  if (excess <= 0) {
    return std::string(text);
  }
  if (width <= 0) {
    return "";
  }
  ++excess;  // the ellipsis
  while (!text.empty() && excess > 0) {
    const CodePoint point = Decode(text);
    excess -= Columns(point.value);
    text.remove_prefix(static_cast<size_t>(point.bytes));
  }
  return absl::StrCat(Ellipsis(unicode), text);
}

std::string PadRight(absl::string_view text, int width) {
  std::string out(text);
  out.append(static_cast<size_t>(std::max(0, width - DisplayWidth(text))), ' ');
  return out;
}

std::string PadLeft(absl::string_view text, int width) {
  std::string out(static_cast<size_t>(std::max(0, width - DisplayWidth(text))), ' ');
  absl::StrAppend(&out, text);
  return out;
}

std::vector<std::string> Wrap(absl::string_view text, int width, absl::string_view indent) {
  const int room = std::max(8, width - DisplayWidth(indent));
  std::vector<std::string> lines;
  std::string line;
  int used = 0;
  const auto flush = [&] {
    if (!line.empty()) {
      lines.push_back(std::string(indent) + line);
      line.clear();
      used = 0;
    }
  };
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    int columns = DisplayWidth(word);
    if (width > 0 && used > 0 && used + 1 + columns > room) {
      flush();
    }
    while (width > 0 && columns > room) {
      size_t bytes = 0;
      for (int taken = 0; taken < room;) {
        const CodePoint point = Decode(word.substr(bytes));
        taken += Columns(point.value);
        if (taken <= room) {
          bytes += static_cast<size_t>(point.bytes);
        }
      }
      line = std::string(word.substr(0, bytes));
      flush();
      word.remove_prefix(bytes);
      columns = DisplayWidth(word);
    }
    if (!word.empty()) {
      line += used > 0 ? " " : "";
      used += (used > 0 ? 1 : 0) + columns;
      absl::StrAppend(&line, word);
    }
  }
  flush();
  return lines;
}

}  // namespace tandem::cli
