// SPDX-License-Identifier: Apache-2.0
#include "jobspec/scalars.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"

namespace tandem::jobspec {
namespace {

bool AllDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Digits without sign; says why where we do not read it as a number.
bool CheckDigits(std::string_view digits, std::string& why) {
  if (AllDigits(digits)) {
    if (digits.size() > 1 && digits.front() == '0') {
      why = "a leading zero means octal to some readers: write it without";
      return false;
    }
    return true;
  }
  why = LooksLikeNumber(std::string(digits)) ? "write an integer, without point or exponent"
                                             : "write an integer in decimal digits";
  return false;
}

template <typename Integer>
bool Parse(const std::string& text, Integer& value, std::string& why) {
  std::string_view digits = text;
  if (digits.starts_with('-') || digits.starts_with('+')) {
    digits.remove_prefix(1);
  }
  if (!CheckDigits(digits, why)) {
    return false;
  }
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

bool ParseInteger(const std::string& text, int64_t min, int64_t max, int64_t& value, std::string& why) {
  return Parse(text, value, why) && value >= min && value <= max;
}

bool ParseUnsigned(const std::string& text, uint64_t& value, std::string& why) {
  return Parse(text, value, why);
}

bool ParseDouble(const std::string& text, double& value, std::string& why) {
  const std::string lower = absl::AsciiStrToLower(text);
  if (lower.find("nan") != std::string::npos || lower.find("inf") != std::string::npos) {
    why = "use a finite number";
    return false;
  }
  std::string_view digits = text;
  const bool signed_text = digits.starts_with('-') || digits.starts_with('+');
  if (signed_text) {
    digits.remove_prefix(1);
  }
  if (!LooksLikeNumber(text)) {
    why = "write a number, for instance 0.001 or 1e-3";
    return false;
  }
  if (digits.size() > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9') {
    why = "a leading zero means octal to some readers: write it without";
    return false;
  }
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    why = "a double cannot hold it";
    return false;
  }
  return true;
}

bool ParseBytes(const std::string& text, int64_t& value, std::string& why) {
  static constexpr struct {
    std::string_view suffix;
    int64_t bytes;
  } kUnits[] = {
      {"KiB", int64_t{1} << 10},
      {"MiB", int64_t{1} << 20},
      {"GiB", int64_t{1} << 30},
      {"TiB", int64_t{1} << 40},
      {"kB", 1'000},
      {"MB", 1'000'000},
      {"GB", 1'000'000'000},
      {"TB", 1'000'000'000'000},
  };
  std::string digits = text;
  int64_t unit = 1;
  for (const auto& known : kUnits) {
    if (text.ends_with(known.suffix)) {
      digits = text.substr(0, text.size() - known.suffix.size());
      unit = known.bytes;
      break;
    }
  }
  if (!ParseInteger(digits, 0, INT64_MAX / unit, value, why)) {
    why = "write a number of bytes, for instance 64MiB or 2GB";
    return false;
  }
  value *= unit;
  return true;
}

bool LooksLikeNumber(const std::string& text) {
  double value = 0;
  return text.find_first_not_of("0123456789+-.eE") == std::string::npos && absl::SimpleAtod(text, &value);
}

}  // namespace tandem::jobspec
