#include "cli/terminal/group_table.h"

#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/terminal/rank_list.h"
#include "cli/terminal/table.h"

namespace tandem::cli {
namespace {

constexpr size_t kWordsShown = 2;   // of one group
constexpr size_t kRanksWidth = 32;  // above it, the first group and the last are enough

std::string Purpose(const parallel::GroupKind& kind) {
  std::string purpose;
  for (const parallel::GroupName& name : parallel::GroupNames()) {
    if (name.name == kind.name || absl::StartsWith(kind.name, absl::StrCat(name.name, "["))) {
      purpose = name.purpose;
    }
  }
  return kind.clone_of.empty() ? purpose : absl::StrCat(purpose, "; a clone of ", kind.clone_of);
}

// "{0-6:2} {1-7:2}": the first `shown` - 1 groups and the last.
std::string Ranks(const std::vector<parallel::RankList>& groups, size_t shown, bool unicode) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups.size() > shown && i + 1 == shown) {
      texts.push_back(unicode ? "…" : "...");
      i = groups.size() - 1;
    }
    texts.push_back(absl::StrCat("{", ShortRankList(groups[i], kWordsShown, unicode), "}"));
  }
  return absl::StrJoin(texts, " ");
}

std::string Ranks(const std::vector<parallel::RankList>& groups, bool unicode) {
  const std::string text = Ranks(groups, 3, unicode);
  return text.size() <= kRanksWidth ? text : Ranks(groups, 2, unicode);
}

}  // namespace

std::string GroupTable(const std::vector<parallel::GroupKind>& kinds, int width, bool unicode) {
  Table table({{.heading = "NAME"},
               {.heading = "GROUPS", .align = Table::Align::kRight},
               {.heading = "SIZE", .align = Table::Align::kRight},
               {.heading = "RANKS"},
               {.heading = "FOR", .shrinks = true}});
  for (const parallel::GroupKind& kind : kinds) {
    table.Add({kind.name, absl::StrCat(kind.groups.size()), absl::StrCat(kind.groups.front().size()),
               Ranks(kind.groups, unicode), Purpose(kind)});
  }
  return table.Render(width, unicode);
}

std::string EveryGroupTable(const std::vector<parallel::GroupKind>& kinds, int width, bool unicode) {
  Table table({{.heading = "NAME"},
               {.heading = "GROUP", .align = Table::Align::kRight},
               {.heading = "SIZE", .align = Table::Align::kRight},
               {.heading = "RANKS", .shrinks = true}});
  for (const parallel::GroupKind& kind : kinds) {
    for (size_t i = 0; i < kind.groups.size(); ++i) {
      table.Add({kind.name, absl::StrCat(i), absl::StrCat(kind.groups[i].size()), RankList(kind.groups[i])});
    }
  }
  return table.Render(width, unicode);
}

}  // namespace tandem::cli
