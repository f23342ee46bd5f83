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

std::string GroupText(const std::vector<parallel::Group>& groups, size_t index) {
  if (index >= groups.size()) {
    return "none";
  }
  const parallel::Group& group = groups[index];
  return absl::StrCat(group.name, " {", absl::StrJoin(group.ranks, " "), "}",
                      group.clone_of < 0 ? "" : absl::StrCat(", a clone of group ", group.clone_of));
}

}  // namespace

void RequireSameGroups(const std::vector<parallel::Group>& planned,
                       const std::vector<parallel::Group>& listed) {
  for (size_t i = 0; i < std::max(planned.size(), listed.size()); ++i) {
    if (i >= planned.size() || i >= listed.size() || planned[i] != listed[i]) {
      throw BuildMismatch(absl::StrCat(
          "process group ", i, " is ", GroupText(listed, i), " in the controller's list and ",
          GroupText(planned, i), " in this trainer's plan; install controller and workers from one build"));
    }
  }
}

std::vector<comm::Membership> MembershipsOf(const std::vector<parallel::Group>& groups, int rank,
                                            const std::map<std::string, parallel::GroupOptions>& options) {
  std::vector<comm::Membership> memberships;
  for (size_t i = 0; i < groups.size(); ++i) {
    const parallel::Group& group = groups[i];
    const int place = parallel::PlaceIn(group, rank);
    if (place < 0) {
      continue;
    }
    const auto own = options.find(group.name);
    memberships.push_back({.group = group.name,
                           .prefix = absl::StrCat("group/", i, "/"),
                           .rank = place,
                           .size = static_cast<int>(group.ranks.size()),
                           .ranks = group.ranks,
                           .options = own == options.end() ? parallel::GroupOptions() : own->second,
                           .clone_of = group.clone_of < 0 ? "" : groups[group.clone_of].name});
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
