// SPDX-License-Identifier: Apache-2.0
#include "platform/shown_text.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_format.h"

namespace tandem::platform {
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

}  // namespace tandem::platform
