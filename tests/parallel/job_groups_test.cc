// SPDX-License-Identifier: Apache-2.0
#include "parallel/job_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace tandem::parallel {
namespace {

std::vector<Group> GroupsOf(const GridSizes& sizes) {
  const absl::StatusOr<std::vector<Group>> groups = BuildProcessGroups(sizes);
  EXPECT_TRUE(groups.ok()) << groups.status();
  return groups.ok() ? *groups : std::vector<Group>();
}

TEST(JobGroupsTest, DataParallelJobCreatesFourGroupsInOrder) {
  const RankList all = {0, 1, 2};
  EXPECT_EQ(GroupsOf({.world = 3}), (std::vector<Group>{{.name = "dp_cp", .ranks = all},
                                                        {.name = "dp_cp_ag", .ranks = all, .clone_of = 0},
                                                        {.name = "intra_dist_opt", .ranks = all},
                                                        {.name = "report", .ranks = all}}));
  EXPECT_EQ(GroupsOf({.world = 1}).size(), 4);
}

TEST(JobGroupsTest, ReplicasMeetInOuterGroups) {
  const RankList all = {0, 1, 2, 3};
  EXPECT_EQ(GroupsOf({.world = 4, .replicas = 2}),
            (std::vector<Group>{{.name = "dp_cp", .ranks = all},
                                {.name = "intra_dp_cp", .ranks = {0, 1}},
                                {.name = "intra_dp_cp", .ranks = {2, 3}},
                                {.name = "inter_dp_cp", .ranks = {0, 2}},
                                {.name = "inter_dp_cp", .ranks = {1, 3}},
                                {.name = "dp_cp_ag", .ranks = {0, 1}, .clone_of = 1},
                                {.name = "dp_cp_ag", .ranks = {2, 3}, .clone_of = 2},
                                {.name = "world", .ranks = all},
                                {.name = "report", .ranks = all}}));
}

TEST(JobGroupsTest, ExpertsHaveGroupsForEveryUse) {
  std::vector<std::string> names;
  for (const Group& group : GroupsOf({.world = 8, .expert = 2, .replicas = 2})) {
    if (names.empty() || names.back() != group.name) {
      names.push_back(group.name);
    }
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"dp_cp", "intra_dp_cp", "inter_dp_cp", "dp_cp_ag", "ep", "expt_dp",
                                      "intra_expt_dp", "inter_dist_opt", "expt_dp_ag", "world", "report"}));
}

TEST(JobGroupsTest, NeighbouringStagesHaveLinksBothWays) {
  const auto links = [](const GridSizes& sizes) {
    std::vector<Group> groups = GroupsOf(sizes);
    std::erase_if(groups, [](const Group& group) { return !IsLink(group.name); });
    return groups;
  };
  EXPECT_EQ(links({.world = 4, .pipeline = 2, .virtual_pipeline = 2}),
            (std::vector<Group>{{.name = "pp/0-1/values", .ranks = {0, 2}},
                                {.name = "pp/0-1/values", .ranks = {1, 3}},
                                {.name = "pp/0-1/gradients", .ranks = {0, 2}},
                                {.name = "pp/0-1/gradients", .ranks = {1, 3}},
                                {.name = "pp/1-0/values", .ranks = {2, 0}},
                                {.name = "pp/1-0/values", .ranks = {3, 1}},
                                {.name = "pp/1-0/gradients", .ranks = {2, 0}},
                                {.name = "pp/1-0/gradients", .ranks = {3, 1}}}));
  EXPECT_EQ(links({.world = 3, .pipeline = 3}),
            (std::vector<Group>{{.name = "pp/0-1/values", .ranks = {0, 1}},
                                {.name = "pp/1-0/gradients", .ranks = {1, 0}},
                                {.name = "pp/1-2/values", .ranks = {1, 2}},
                                {.name = "pp/2-1/gradients", .ranks = {2, 1}}}));
  EXPECT_EQ(links({.world = 3}), std::vector<Group>());
}

TEST(JobGroupsTest, ClonesPointAtTheirParents) {
  const GridSizes sizes = {.world = 24,
                           .tensor = 2,
                           .pipeline = 3,
                           .expert = 2,
                           .expert_tensor = 1,
                           .replicas = 2,
                           .order = "tp-ep-dp-cp-pp",
                           .rank_offset = 5};
  const ProcessGroups all = ProcessGroups::Make(sizes).value();
  const std::vector<Group> groups = GroupsOf(sizes);
  int clones = 0;
  for (const Group& group : groups) {
    if (group.clone_of < 0) {
      const std::vector<RankList>& lists = all.Find(group.name)->groups;
      EXPECT_NE(std::find(lists.begin(), lists.end(), group.ranks), lists.end()) << group.name;
      continue;
    }
    ++clones;
    EXPECT_EQ(groups[group.clone_of].ranks, group.ranks);
    EXPECT_EQ(groups[group.clone_of].name, group.name == "dp_cp_ag" ? "intra_dp_cp" : "intra_expt_dp");
  }
  EXPECT_EQ(clones, 24 / 2 + 24 / 2);  // inner groups of two ranks, on both grids
}

// Under replicas one copy of the optimizer's state is half of the ranks, and no norm is of half of them.
TEST(JobGroupsTest, TheNormIsExchangedOverAllRanks) {
  for (const int replicas : {1, 2, 4}) {
    const GridSizes sizes = {.world = 16, .tensor = 2, .pipeline = 2, .replicas = replicas};
    std::set<int> ranks;
    int groups = 0;
    for (const Group& group : GroupsOf(sizes)) {
      if (group.name == NormGroup(sizes)) {
        ranks.insert(group.ranks.begin(), group.ranks.end());
        ++groups;
      }
    }
    EXPECT_EQ(groups, 1);
    EXPECT_EQ(ranks.size(), 16);
  }
}

TEST(JobGroupsTest, SizesThatDoNotFitAreRefused) {
  EXPECT_EQ(BuildProcessGroups({.world = 4, .replicas = 3}).status().message(),
            ToText(CheckGrid({.world = 4, .replicas = 3}).at(0)));
}

}  // namespace
}  // namespace tandem::parallel
