#include "cli/terminal/rank_list.h"

#include "absl/strings/str_cat.h"

namespace tandem::cli {

std::string RankList(const std::vector<int>& ranks) {
  std::string text;
  for (size_t begin = 0; begin < ranks.size();) {
    size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) {
      ++end;
    }
    if (end - begin < 3) {
      end = begin + 1;
    }
    absl::StrAppend(&text, begin > 0 ? " " : "", ranks[begin]);
    if (end - begin > 1) {
      absl::StrAppend(&text, "-", ranks[end - 1]);
    }
    begin = end;
  }
  return text;
}

}  // namespace tandem::cli
