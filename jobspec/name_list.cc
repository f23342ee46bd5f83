// SPDX-License-Identifier: Apache-2.0
#include "jobspec/name_list.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace tandem::jobspec {

std::vector<std::string> NamesIn(std::string_view list, std::string_view nothing) {
  std::vector<std::string> names = absl::StrSplit(absl::string_view(list.data(), list.size()), ',');
  for (std::string& name : names) {
    absl::StripAsciiWhitespace(&name);
  }
  return names.size() == 1 && names[0] == nothing ? std::vector<std::string>() : names;
}

bool MatchesName(std::string_view pattern, std::string_view name) {
  size_t at = 0;                         // of the pattern
  size_t star = std::string_view::npos;  // the last * before it
  size_t behind_star = 0;                // of the name: where what follows that * was tried
  for (size_t i = 0; i < name.size();) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      behind_star = i;
    } else if (at < pattern.size() && pattern[at] == name[i]) {
      ++at;
      ++i;
    } else if (star != std::string_view::npos) {  // the * takes one character more
      at = star + 1;
      i = ++behind_star;
    } else {
      return false;
    }
  }
  return pattern.substr(at).find_first_not_of('*') == std::string_view::npos;
}

}  // namespace tandem::jobspec
