// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/group_table.h"

#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/terminal/rank_list.h"
#include "cli/terminal/table.h"
#include "parallel/job_groups.h"

namespace tandem::cli {
namespace {

constexpr size_t kRanksWidth = 36;  // bytes
constexpr char kLinks[] = "link";   // as parallel::GroupNames has them

std::string Purpose(const parallel::GroupKind& kind) {
  std::string purpose;
  for (const parallel::GroupName& name : parallel::GroupNames()) {
    if (name.name == kind.name || absl::StartsWith(kind.name, absl::StrCat(name.name, "["))) {
      purpose = name.purpose;
    }
  }
  return kind.clone_of.empty() ? purpose : absl::StrCat(purpose, "; a clone of ", kind.clone_of);
}

// Merges all links into one kind: each pair of neighbouring stages has two.
std::vector<parallel::GroupKind> WithOneOfLinks(const std::vector<parallel::GroupKind>& kinds) {
  std::vector<parallel::GroupKind> result;
  for (const parallel::GroupKind& kind : kinds) {
    const bool is_link = parallel::IsLink(kind.name);
    if (is_link && !result.empty() && result.back().name == kLinks) {
      result.back().groups.insert(result.back().groups.end(), kind.groups.begin(), kind.groups.end());
      continue;
    }
    result.push_back(kind);
    if (is_link) {
      result.back().name = kLinks;
    }
  }
  return result;
}

// "{0-6:2} {1-7:2} … {9-15:2}": the first groups and the last, each with its first words and the last.
std::string Ranks(const std::vector<parallel::RankList>& groups, size_t most_groups, size_t most_words,
                  bool unicode) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups.size() > most_groups && i + 1 == most_groups) {
      texts.push_back(unicode ? "…" : "...");
      i = groups.size() - 1;
    }
    texts.push_back(absl::StrCat("{", ShortRankList(groups[i], most_words, unicode), "}"));
  }
  return absl::StrJoin(texts, " ");
}

// Returns as many ranks as the width allows.
std::string Ranks(const std::vector<parallel::RankList>& groups, bool unicode) {
  for (const auto& [most_groups, most_words] : {std::pair(3, 4), std::pair(2, 4), std::pair(3, 2)}) {
    std::string text = Ranks(groups, most_groups, most_words, unicode);
    if (text.size() <= kRanksWidth) {
      return text;
    }
  }
  return Ranks(groups, 2, 2, unicode);
}

}  // namespace

std::string GroupTable(const std::vector<parallel::GroupKind>& kinds, int width, bool unicode) {
  Table table({"NAME", Right("GROUPS"), Right("SIZE"), "RANKS", Shrinking("FOR")});
  for (const parallel::GroupKind& kind : WithOneOfLinks(kinds)) {
    table.Add({kind.name, absl::StrCat(kind.groups.size()), absl::StrCat(kind.groups.front().size()),
               Ranks(kind.groups, unicode), Purpose(kind)});
  }
  return table.Render(width, unicode);
}

std::string EveryGroupTable(const std::vector<parallel::GroupKind>& kinds, int width, bool unicode) {
  Table table({"NAME", Right("GROUP"), Right("SIZE"), Shrinking("RANKS")});
  for (const parallel::GroupKind& kind : kinds) {
    for (size_t i = 0; i < kind.groups.size(); ++i) {
      table.Add({kind.name, absl::StrCat(i), absl::StrCat(kind.groups[i].size()), RankList(kind.groups[i])});
    }
  }
  return table.Render(width, unicode);
}

}  // namespace tandem::cli
