// SPDX-License-Identifier: Apache-2.0
#include "jobspec/surrogate_pairs.h"

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "jobspec/json_end.h"

namespace tandem::jobspec {
namespace {

constexpr size_t kEscape = 6;  // \ud83d

// The number of the escape, \u and four digits, at the beginning of `text`; none: there is none.
std::optional<uint32_t> EscapedAt(std::string_view text) {
  uint32_t value = 0;
  return text.size() >= kEscape && text.starts_with("\\u") &&
                 absl::SimpleHexAtoi(absl::string_view(text.data() + 2, kEscape - 2), &value)
             ? std::optional(value)
             : std::nullopt;
}

// The character of a pair at the beginning of `text`; none: there is none.
std::optional<uint32_t> PairAt(std::string_view text) {
  const std::optional<uint32_t> high = EscapedAt(text);
  if (!high.has_value() || *high < 0xD800 || *high > 0xDBFF) {
    return std::nullopt;
  }
  const std::optional<uint32_t> low = EscapedAt(text.substr(kEscape));
  return low.has_value() && *low >= 0xDC00 && *low <= 0xDFFF
             ? std::optional(0x10000 + ((*high - 0xD800) << 10) + (*low - 0xDC00))
             : std::nullopt;
}

}  // namespace

std::string WithYamlEscapes(std::string_view text) {
  // Most texts have no pair, and are not read once more.
  if ((text.find("\\ud") == std::string_view::npos && text.find("\\uD") == std::string_view::npos) ||
      EndOfJson(text) != std::string_view::npos) {
    return std::string(text);
  }
  std::string out;
  std::string shorter;  // spaces: by how much the string is, which stand behind it, and mean nothing there
  bool in_string = false;
  for (size_t at = 0; at < text.size();) {
    if (const std::optional<uint32_t> character = in_string ? PairAt(text.substr(at)) : std::nullopt) {
      const std::string escape = absl::StrFormat("\\U%08x", *character);
      out += escape;
      shorter.append(2 * kEscape - escape.size(), ' ');
      at += 2 * kEscape;
      continue;
    }
    const size_t length = text[at] == '\\' ? 2 : 1;  // \" ends nothing, and \\ escapes no u
    out += text.substr(at, length);
    if (text[at] == '"') {
      in_string = !in_string;
      out += shorter;  // empty where a string begins
      shorter.clear();
    }
    at += length;
  }
  return out;
}

}  // namespace tandem::jobspec
