// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/rank_list.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem::cli {
namespace {

std::vector<std::string> Words(const std::vector<int>& ranks) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < ranks.size();) {
    const int step = begin + 1 < ranks.size() ? ranks[begin + 1] - ranks[begin] : 0;
    size_t end = begin + 1;
    while (step > 0 && end < ranks.size() && ranks[end] - ranks[end - 1] == step) {
      ++end;
    }
    if (end - begin < (step == 1 ? 3 : 4)) {
      end = begin + 1;
    }
    std::string& word = words.emplace_back(absl::StrCat(ranks[begin]));
    if (end - begin > 1) {
      absl::StrAppend(&word, "-", ranks[end - 1]);
      if (step > 1) {
        absl::StrAppend(&word, ":", step);
      }
    }
    begin = end;
  }
  return words;
}

}  // namespace

std::string RankList(const std::vector<int>& ranks) { return absl::StrJoin(Words(ranks), " "); }

std::string ShortRankList(const std::vector<int>& ranks, size_t most, bool unicode) {
  std::vector<std::string> words = Words(ranks);
  if (words.size() > most) {
    words.erase(words.begin() + static_cast<int64_t>(most) - 1, words.end() - 1);
    words.insert(words.end() - 1, unicode ? "…" : "...");
  }
  return absl::StrJoin(words, " ");
}

}  // namespace tandem::cli
