// SPDX-License-Identifier: Apache-2.0
#include "jobspec/text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tandem::jobspec {
namespace {

std::string Escaped(char32_t character) {
  if (character == '\n') {
    return "\\n";
  }
  if (character == '\t') {
    return "\\t";
  }
  if (character == '\r') {
    return "\\r";
  }
  return character < 0x100 ? absl::StrFormat("\\x%02x", static_cast<uint32_t>(character))
                           : absl::StrFormat("\\u%04x", static_cast<uint32_t>(character));
}

}  // namespace

int DecodeUtf8(std::string_view text, size_t at, char32_t& character) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(at);
  if (first < 0x80) {
    character = first;
    return 1;
  }
  const int length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || at + length > text.size()) {
    return 0;
  }
  char32_t value = first & (0x7F >> length);
  for (int i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) {
      return 0;
    }
    value = (value << 6) | (byte(at + i) & 0x3F);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (overlong || surrogate || value > 0x10FFFF) {
    return 0;
  }
  character = value;
  return length;
}

bool IsPlain(char32_t c) {
  const bool control = c < 0x20 || (c >= 0x7F && c < 0xA0);
  const bool line_end = c == 0x2028 || c == 0x2029;
  const bool direction = c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) || c == 0x061C;
  const bool invisible = (c >= 0x200B && c <= 0x200D) || (c >= 0x2060 && c <= 0x2069) || c == 0xFEFF;
  return !control && !line_end && !direction && !invisible;
}

std::string Shown(std::string_view text, size_t max_bytes) {
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    char32_t character = 0;
    const int length = DecodeUtf8(text, at, character);
    std::string piece;
    if (length == 0) {
      piece = absl::StrFormat("\\x%02x", static_cast<uint8_t>(text[at]));
    } else {
      piece = IsPlain(character) ? std::string(text.substr(at, length)) : Escaped(character);
    }
    at += std::max(length, 1);
    if (shown.size() + piece.size() > max_bytes - 3 &&
        shown.size() + piece.size() + text.size() - at > max_bytes) {
      return shown + "...";
    }
    shown += piece;
  }
  return shown;
}

std::string NearestMultiples(int64_t value, int64_t unit, int64_t max) {
  const int64_t below = value / unit * unit;
  const int64_t above = below + unit;
  if (below < unit) {
    return absl::StrCat("the nearest is ", above);
  }
  return above > max ? absl::StrCat("the nearest is ", below)
                     : absl::StrCat("the nearest are ", below, " and ", above);
}

v1::Violation MakeViolation(std::string_view path, std::string_view value, std::string_view allowed,
                            std::string_view remedy) {
  v1::Violation violation;
  violation.set_path(Shown(path, 200));
  violation.set_value(Shown(value));
  violation.set_allowed(std::string(allowed));
  violation.set_remedy(std::string(remedy));
  return violation;
}

void Locate(const ReadResult& read, std::vector<v1::Violation>& violations) {
  for (v1::Violation& violation : violations) {
    violation.set_file(read.file);
    if (violation.line() > 0) {
      continue;
    }
    std::string path = violation.path();
    while (!path.empty() && violation.line() == 0) {
      for (const auto& [known, position] : read.positions) {
        if (known == path) {
          violation.set_line(position.first);
          violation.set_column(position.second);
          break;
        }
      }
      const size_t dot = path.rfind('.');
      path = dot == std::string::npos ? "" : path.substr(0, dot);
    }
  }
}

std::string ToText(const v1::Violation& violation) {
  std::string text;
  if (!violation.file().empty()) {
    absl::StrAppend(&text, Shown(violation.file(), 300), ":");
    if (violation.line() > 0) {
      absl::StrAppend(&text, violation.line(), ":", violation.column(), ":");
    }
    text += " ";
  } else if (violation.line() > 0) {
    absl::StrAppend(&text, violation.line(), ":", violation.column(), ": ");
  }
  const std::string value = Shown(violation.value(), 200);
  if (violation.path().empty()) {
    text += value;
  } else if (value.empty()) {
    absl::StrAppend(&text, Shown(violation.path(), 200), ": missing");
  } else {
    absl::StrAppend(&text, Shown(violation.path(), 200), ": ", value, " is not allowed");
  }
  if (!violation.allowed().empty()) {
    absl::StrAppend(&text, "; allowed: ", Shown(violation.allowed(), 600));
  }
  if (!violation.remedy().empty()) {
    absl::StrAppend(&text, "; ", Shown(violation.remedy(), 600));
  }
  return text;
}

std::string ToText(const std::vector<v1::Violation>& violations) {
  std::string text;
  for (const v1::Violation& violation : violations) {
    absl::StrAppend(&text, ToText(violation), "\n");
  }
  return text;
}

}  // namespace tandem::jobspec
