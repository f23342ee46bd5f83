#include "parallel/process_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <random>
#include <set>

#include "parallel/rank_grid.h"

namespace tandem::parallel {
namespace {

using ::testing::HasSubstr;
using Lists = std::vector<std::vector<int>>;

std::map<std::string, Lists> ByName(const std::vector<Group>& groups) {
  std::map<std::string, Lists> lists;
  for (const Group& group : groups) {
    lists[group.name].push_back(group.ranks);
  }
  return lists;
}

std::map<std::string, Lists> All(const GridSizes& sizes) {
  const absl::StatusOr<std::vector<Group>> groups = AllProcessGroups(sizes);
  EXPECT_TRUE(groups.ok()) << groups.status();
  return groups.ok() ? ByName(*groups) : std::map<std::string, Lists>();
}

std::string Error(const GridSizes& sizes) {
  EXPECT_EQ(AllProcessGroups(sizes).status(), BuildProcessGroups(sizes).status());
  return std::string(BuildProcessGroups(sizes).status().message());
}

// All lists of consecutive ranks of this length.
Lists Runs(int world, int length) {
  Lists lists;
  for (int rank = 0; rank < world; ++rank) {
    if (rank % length == 0) {
      lists.emplace_back();
    }
    lists.back().push_back(rank);
  }
  return lists;
}

TEST(ProcessGroupsTest, TensorAndPipeline) {
  auto groups = All({.world = 8, .tensor = 2, .pipeline = 4, .expert_tensor = 2});
  EXPECT_EQ(groups["tp"], Runs(8, 2));
  EXPECT_EQ(groups["pp"], (Lists{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(groups["dp_cp"], Runs(8, 1));
  EXPECT_EQ(groups["mp"], Runs(8, 8));
}

TEST(ProcessGroupsTest, TensorDataAndPipeline) {
  auto groups = All({.world = 16, .tensor = 2, .pipeline = 4, .expert_tensor = 2});
  EXPECT_EQ(groups["dp_cp"], (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(groups["pp"], (Lists{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  EXPECT_EQ(groups["mp"], (Lists{{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}}));
  EXPECT_EQ(groups["embd"], (Lists{{0, 12}, {1, 13}, {2, 14}, {3, 15}}));
  EXPECT_EQ(groups["pos_embd"], (Lists{{0}, {1}, {2}, {3}}));
}

TEST(ProcessGroupsTest, TensorAndContext) {
  auto groups = All({.world = 8, .tensor = 4, .context = 2, .expert_tensor = 4});
  const Lists pairs = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  EXPECT_EQ(groups["tp"], Runs(8, 4));
  EXPECT_EQ(groups["cp"], pairs);
  EXPECT_EQ(groups["dp_cp"], pairs);
  EXPECT_EQ(groups["expt_dp"], pairs);
  EXPECT_EQ(groups.count("dp"), 0);  // every rank alone
}

TEST(ProcessGroupsTest, ExpertsWithReplicas) {
  auto groups = All({.world = 8, .expert = 2, .replicas = 2});
  EXPECT_EQ(groups["dp_cp"], Runs(8, 8));
  EXPECT_EQ(groups["intra_dp_cp"], Runs(8, 4));
  EXPECT_EQ(groups["ep"], Runs(8, 2));
  EXPECT_EQ(groups["expt_dp"], (Lists{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(groups["intra_expt_dp"], (Lists{{0, 2}, {4, 6}, {1, 3}, {5, 7}}));
  EXPECT_EQ(groups["inter_dist_opt"], (Lists{{0, 4}, {2, 6}, {1, 5}, {3, 7}}));
  EXPECT_EQ(groups["intra_dist_opt"], Runs(8, 4));
  EXPECT_EQ(groups["dp_cp_ag"], groups["intra_dp_cp"]);  // gathers run where shards are
  EXPECT_EQ(groups["expt_dp_ag"], groups["intra_expt_dp"]);
}

TEST(ProcessGroupsTest, ExpertsWithTensor) {
  auto groups = All({.world = 8, .tensor = 2, .expert = 2, .expert_tensor = 2});
  EXPECT_EQ(groups["dp_cp"], (Lists{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(groups["ep"], (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(groups["tp_ep"], Runs(8, 4));
  EXPECT_EQ(groups["expt_dp"], (Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(ProcessGroupsTest, WholeExpertsBesideTensor) {
  auto groups = All({.world = 8, .tensor = 2, .expert = 4, .expert_tensor = 1});
  EXPECT_EQ(groups["dp_cp"], (Lists{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(groups["ep"], Runs(8, 4));
  EXPECT_EQ(groups.count("expt_tp"), 0);
  EXPECT_EQ(groups["expt_dp"], (Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(ProcessGroupsTest, EverythingAtOnce) {
  auto groups = All({.world = 16, .tensor = 2, .context = 2, .pipeline = 2, .expert = 2, .expert_tensor = 1});
  const Lists data = {{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}};
  const Lists model = {{0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}, {6, 7, 14, 15}};
  EXPECT_EQ(groups["cp"], (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(groups["dp"], (Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  EXPECT_EQ(groups["dp_cp"], data);
  EXPECT_EQ(groups["mp"], model);
  EXPECT_EQ(groups["ep"], Runs(16, 2));
  EXPECT_EQ(groups["expt_dp"], data);
  EXPECT_EQ(groups["tp_ep_pp"], model);
  // Not sorted: the rank in a group is the place in its list.
  EXPECT_EQ(groups["intra_dist_opt"], (Lists{{0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15}}));
}

TEST(ProcessGroupsTest, ManyExpertsInAPipeline) {
  auto groups = All({.world = 16, .tensor = 2, .pipeline = 2, .expert = 4, .expert_tensor = 1});
  EXPECT_EQ(groups["dp_cp"], (Lists{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
  EXPECT_EQ(groups["ep"], Runs(16, 4));
  EXPECT_EQ(groups["expt_dp"], (Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  EXPECT_EQ(groups["tp_ep_pp"], (Lists{{0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}}));
}

TEST(ProcessGroupsTest, DataParallelJobCreatesFourGroupsInOrder) {
  const absl::StatusOr<std::vector<Group>> groups = BuildProcessGroups({.world = 3});
  ASSERT_TRUE(groups.ok()) << groups.status();
  const std::vector<int> all = {0, 1, 2};
  EXPECT_EQ(*groups, (std::vector<Group>{{.name = "dp_cp", .ranks = all},
                                         {.name = "dp_cp_ag", .ranks = all, .clone_of = 0},
                                         {.name = "intra_dist_opt", .ranks = all},
                                         {.name = "report", .ranks = all}}));
}

TEST(ProcessGroupsTest, OneRankHasTheSameGroups) {
  const absl::StatusOr<std::vector<Group>> groups = BuildProcessGroups({.world = 1});
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_EQ(groups->size(), 4);
  EXPECT_EQ(All({.world = 1}).size(), 4);
}

TEST(ProcessGroupsTest, GatherGroupIsTheShardingGroupForAnyOrderAndOffset) {
  for (const char* order : {"tp-cp-ep-dp-pp", "tp-cp-pp-ep-dp", "dp-tp-pp", "pp-dp-tp"}) {
    for (const int offset : {0, 16}) {
      for (const int replicas : {1, 2}) {
        const GridSizes sizes = {.world = 16,
                                 .tensor = 2,
                                 .pipeline = 2,
                                 .expert_tensor = 2,
                                 .replicas = replicas,
                                 .order = order,
                                 .rank_offset = offset};
        const absl::StatusOr<std::vector<Group>> groups = BuildProcessGroups(sizes);
        ASSERT_TRUE(groups.ok()) << groups.status();
        int clones = 0;
        for (const Group& group : *groups) {
          if (group.name == "dp_cp_ag") {
            ++clones;
            ASSERT_GE(group.clone_of, 0);
            const Group& original = (*groups)[group.clone_of];
            EXPECT_EQ(original.name, replicas > 1 ? "intra_dp_cp" : "dp_cp");
            EXPECT_EQ(original.ranks, group.ranks);
          } else {
            EXPECT_EQ(group.clone_of, -1);
          }
          for (const int rank : group.ranks) {
            EXPECT_GE(rank, offset);
            EXPECT_LT(rank, offset + 16);
          }
        }
        EXPECT_EQ(clones, 4 * replicas);
      }
    }
  }
}

TEST(ProcessGroupsTest, RefusesSizesThatDoNotFitAndNamesThem) {
  EXPECT_EQ(Error({.world = 8, .tensor = 3}), "tensor × context × pipeline = 3 does not divide world size 8");
  EXPECT_EQ(Error({.world = 8, .expert = 3}),
            "expert_tensor × expert × pipeline = 3 does not divide world size 8");
  EXPECT_EQ(Error({.world = 8, .replicas = 3}),
            "replicas = 3 does not divide the data-parallel ranks (with context) 8");
  EXPECT_EQ(Error({.world = 8, .expert = 8, .replicas = 2}),
            "replicas = 2 does not divide the data-parallel ranks of experts 1");
  EXPECT_EQ(Error({.world = 0}), "world is 0, must be 1 to 1048576");
  EXPECT_EQ(Error({.world = 8, .order = "tp-tp"}), "order tp-tp: tp is there twice");
  EXPECT_THAT(Error({.world = 8, .tensor = 2, .pipeline = 2, .expert = 2, .order = "tp-cp-pp-ep-dp"}),
              HasSubstr("gives experts other pipelines than the rest"));
}

TEST(ProcessGroupsTest, EveryRankIsInAtMostOneGroupOfAName) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  std::mt19937 random(seed);
  const auto pick = [&] { return 1 << (random() % 3); };
  int built = 0;
  for (int round = 0; round < 500; ++round) {
    GridSizes sizes = {.tensor = pick(),
                       .context = pick(),
                       .pipeline = pick(),
                       .expert = pick(),
                       .expert_tensor = pick(),
                       .replicas = pick(),
                       .rank_offset = pick()};
    sizes.world = sizes.tensor * sizes.context * sizes.pipeline * pick();
    const absl::StatusOr<std::vector<Group>> groups = AllProcessGroups(sizes);
    if (!groups.ok()) {
      continue;
    }
    ++built;
    for (const auto& [name, lists] : ByName(*groups)) {
      std::set<int> seen;
      size_t members = 0;
      for (const auto& list : lists) {
        EXPECT_EQ(list.size(), lists[0].size()) << name;
        seen.insert(list.begin(), list.end());
        members += list.size();
      }
      EXPECT_EQ(seen.size(), members) << name;
      EXPECT_GE(*seen.begin(), sizes.rank_offset);
      EXPECT_LT(*seen.rbegin(), sizes.rank_offset + sizes.world);
    }
  }
  EXPECT_GT(built, 50);
}

}  // namespace
}  // namespace tandem::parallel
