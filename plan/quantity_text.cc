// SPDX-License-Identifier: Apache-2.0
#include "plan/quantity_text.h"

#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tandem::plan {

std::string GroupedText(int64_t number) {
  std::string digits = absl::StrCat(number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

std::string SizeText(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " B") : absl::StrFormat("%.2f %s", value, kUnits[unit]);
}

std::string CountText(double number) {
  constexpr const char* kUnits[] = {"", " k", " M", " G", " T", " P", " E"};
  size_t unit = 0;
  while (number >= 1000 && unit + 1 < std::size(kUnits)) {
    number /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.4g%s", number, kUnits[unit]);
}

std::string DurationText(int64_t nanoseconds) {
  constexpr const char* kUnits[] = {"ns", "us", "ms", "s"};
  double value = static_cast<double>(nanoseconds);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0) {
    return absl::StrCat(nanoseconds, " ns");
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f %s", decimals, value, kUnits[unit]);
}

std::string ShareText(double part, double whole) {
  const double percent = whole > 0 ? 100 * part / whole : 0;
  return absl::StrFormat("%.*f %%", percent != 0 && percent < 9.95 ? 1 : 0, percent);
}

std::string DurationShareText(int64_t nanoseconds, int64_t whole) {
  return absl::StrCat(DurationText(nanoseconds), " (",
                      ShareText(static_cast<double>(nanoseconds), static_cast<double>(whole)), ")");
}

void AppendRow(std::string& text, const std::string& key, const std::string& value) {
  absl::StrAppendFormat(&text, "  %-22s %s\n", key, value);
}

}  // namespace tandem::plan
