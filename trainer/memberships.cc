// SPDX-License-Identifier: Apache-2.0
#include "trainer/memberships.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/failure.h"

namespace tandem::trainer {
namespace {

std::string Braced(const std::vector<int>& numbers) {
  return absl::StrCat("{", absl::StrJoin(numbers, " "), "}");
}

std::string GroupText(const std::vector<parallel::Group>& groups, size_t index) {
  if (index >= groups.size()) {
    return "none";
  }
  const parallel::Group& group = groups[index];
  return absl::StrCat(group.name, " ", Braced(group.ranks),
                      group.clone_of < 0 ? "" : absl::StrCat(", a clone of group ", group.clone_of));
}

[[noreturn]] void Refuse(const std::string& what, const std::string& listed, const std::string& planned) {
  throw BuildMismatch(absl::StrCat(what, " is ", listed, " in the controller's list and ", planned,
                                   " in this trainer's plan; install controller and workers from one build"));
}

}  // namespace

RankGroups GroupsOfRank(const std::vector<parallel::Group>& all, int rank) {
  RankGroups groups{.all = all, .own = {}};
  for (size_t i = 0; i < all.size(); ++i) {
    if (parallel::PlaceIn(all[i], rank) >= 0) {
      groups.own.push_back(static_cast<int>(i));
    }
  }
  return groups;
}

void RequireSameGroups(const RankGroups& planned, const RankGroups& listed) {
  for (size_t i = 0; i < std::max(planned.all.size(), listed.all.size()); ++i) {
    if (i >= planned.all.size() || i >= listed.all.size() || planned.all[i] != listed.all[i]) {
      Refuse(absl::StrCat("process group ", i), GroupText(listed.all, i), GroupText(planned.all, i));
    }
  }
  if (planned.own != listed.own) {
    Refuse("the list of a rank's process groups", Braced(listed.own), Braced(planned.own));
  }
}

std::vector<comm::Membership> MembershipsOf(const RankGroups& groups, int rank,
                                            const std::map<std::string, parallel::GroupOptions>& options) {
  std::vector<comm::Membership> memberships;
  for (const int index : groups.own) {
    const parallel::Group& group = groups.all[static_cast<size_t>(index)];
    const auto own = options.find(group.name);
    memberships.push_back(
        {.group = group.name,
         .prefix = absl::StrCat("group/", index, "/"),
         .rank = parallel::PlaceIn(group, rank),
         .size = static_cast<int>(group.ranks.size()),
         .ranks = group.ranks,
         .options = own == options.end() ? parallel::GroupOptions() : own->second,
         .clone_of = group.clone_of < 0 ? "" : groups.all[static_cast<size_t>(group.clone_of)].name});
  }
  return memberships;
}

std::vector<comm::CommunicatorUse> CommunicatorUsesOf(const plan::JobPlan& plan) {
  std::vector<comm::CommunicatorUse> uses;
  for (const schedules::CommunicatorUse& use : plan::CommunicatorUses(plan)) {
    uses.push_back({.group = use.group, .purpose = use.purpose, .window = use.window});
  }
  return uses;
}

}  // namespace tandem::trainer
