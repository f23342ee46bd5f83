// SPDX-License-Identifier: Apache-2.0
#include "jobspec/text.h"

#include "absl/strings/str_cat.h"
#include "platform/shown_text.h"

namespace tandem::jobspec {

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
  violation.set_path(platform::Shown(path, 200));
  violation.set_value(platform::Shown(value));
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
      const size_t end = path.find_last_of(".[");
      path = end == std::string::npos ? "" : path.substr(0, end);
    }
  }
}

std::string ToText(const v1::Violation& violation) {
  std::string text;
  if (!violation.file().empty()) {
    absl::StrAppend(&text, platform::Shown(violation.file(), 300), ":");
    if (violation.line() > 0) {
      absl::StrAppend(&text, violation.line(), ":", violation.column(), ":");
    }
    text += " ";
  } else if (violation.line() > 0) {
    absl::StrAppend(&text, violation.line(), ":", violation.column(), ": ");
  }
  const std::string value = platform::Shown(violation.value(), 200);
  if (violation.path().empty()) {
    text += value;
  } else if (value.empty()) {
    absl::StrAppend(&text, platform::Shown(violation.path(), 200), ": missing");
  } else {
    absl::StrAppend(&text, platform::Shown(violation.path(), 200), ": ", value, " is not allowed");
  }
  if (!violation.allowed().empty()) {
    absl::StrAppend(&text, "; allowed: ", platform::Shown(violation.allowed(), 600));
  }
  if (!violation.remedy().empty()) {
    absl::StrAppend(&text, "; ", platform::Shown(violation.remedy(), 600));
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
