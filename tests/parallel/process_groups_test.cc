// SPDX-License-Identifier: Apache-2.0
#include "parallel/process_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/parallel/lists_by_name.h"

namespace tandem::parallel {
namespace {

using ::testing::HasSubstr;

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

std::vector<std::string> NamesOf(const absl::StatusOr<ProcessGroups>& groups) {
  if (!groups.ok()) {
    ADD_FAILURE() << groups.status();
    return {};
  }
  std::vector<std::string> names;
  for (const GroupKind& kind : groups->kinds()) {
    names.push_back(kind.name);
  }
  return names;
}

TEST(ProcessGroupsTest, TensorDataAndPipeline) {
  auto groups = ListsByName({.world = 16, .tensor = 2, .pipeline = 4});
  EXPECT_EQ(groups["dp_cp"], (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(groups["pp"], (Lists{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  EXPECT_EQ(groups["mp"], (Lists{{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}}));
  EXPECT_EQ(groups["embd"], (Lists{{0, 12}, {1, 13}, {2, 14}, {3, 15}}));
  EXPECT_EQ(groups["pos_embd"], (Lists{{0}, {1}, {2}, {3}}));
}

TEST(ProcessGroupsTest, ExpertsWithReplicas) {
  auto groups = ListsByName({.world = 8, .expert = 2, .replicas = 2, .separate_all_gather = true});
  EXPECT_EQ(groups["dp_cp"], Runs(8, 8));
  EXPECT_EQ(groups["intra_dp_cp"], Runs(8, 4));
  EXPECT_EQ(groups["inter_dp_cp"], (Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(groups["ep"], Runs(8, 2));
  EXPECT_EQ(groups["expt_dp"], (Lists{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(groups["intra_expt_dp"], (Lists{{0, 2}, {4, 6}, {1, 3}, {5, 7}}));
  EXPECT_EQ(groups["inter_dist_opt"], (Lists{{0, 4}, {2, 6}, {1, 5}, {3, 7}}));
  EXPECT_EQ(groups["intra_dist_opt"], Runs(8, 4));
  EXPECT_EQ(groups["dp_cp_ag"], groups["intra_dp_cp"]);  // gathers run where shards are
  EXPECT_EQ(groups["expt_dp_ag"], groups["intra_expt_dp"]);
}

TEST(ProcessGroupsTest, EverythingAtOnce) {
  auto groups =
      ListsByName({.world = 16, .tensor = 2, .context = 2, .pipeline = 2, .expert = 2, .expert_tensor = 1});
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

TEST(ProcessGroupsTest, ContextGroupsSplitIntoLevels) {
  auto groups = ListsByName({.world = 16, .context = 16, .context_levels = {2, 2, 4}});
  EXPECT_EQ(groups["hcp[0]"], Runs(16, 2));
  EXPECT_EQ(groups["hcp[1]"], (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(groups["hcp[2]"], (Lists{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
}

TEST(ProcessGroupsTest, EveryNameComesInCreationOrder) {
  EXPECT_EQ(NamesOf(ProcessGroups::Make({.world = 16,
                                         .tensor = 2,
                                         .context = 2,
                                         .pipeline = 2,
                                         .expert = 2,
                                         .expert_tensor = 1,
                                         .replicas = 2,
                                         .context_levels = {2},
                                         .separate_all_gather = true})),
            (std::vector<std::string>{"dp_cp",
                                      "intra_dp_cp",
                                      "inter_dp_cp",
                                      "dp_cp_ag",
                                      "dp",
                                      "cp",
                                      "hcp[0]",
                                      "mp",
                                      "tp",
                                      "pp",
                                      "pp/0-1/values",
                                      "pp/1-0/gradients",
                                      "embd",
                                      "pos_embd",
                                      "tp_dp_cp",
                                      "tp_dp",
                                      "tp_cp",
                                      "ep",
                                      "expt_tp",
                                      "tp_ep",
                                      "tp_ep_pp",
                                      "expt_dp",
                                      "intra_expt_dp",
                                      "inter_dist_opt",
                                      "expt_dp_ag",
                                      "intra_dist_opt",
                                      "world",
                                      "report"}));
}

TEST(ProcessGroupsTest, RequestedNamesComeWithTheirParents) {
  const GridSizes sizes = {.world = 4, .replicas = 2, .separate_all_gather = true};
  EXPECT_EQ(NamesOf(ProcessGroups::Make(sizes, {"tp", "dp_cp_ag"})),
            (std::vector<std::string>{"intra_dp_cp", "dp_cp_ag", "tp"}));
  const absl::StatusOr<ProcessGroups> none = ProcessGroups::Make(sizes, {"hcp", "expt_dp_ag"});
  EXPECT_EQ(NamesOf(none), std::vector<std::string>());  // these sizes give them no meaning
  EXPECT_EQ(none->Find("expt_dp_ag"), nullptr);
}

TEST(ProcessGroupsTest, UnknownNameListsTheKnownOnes) {
  const absl::Status status = ProcessGroups::Make({.world = 4}, {"dp_cp", "dp-cp"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the requested groups are invalid: there is no \"dp-cp\"; there are dp_cp, "));
}

// The list of members was once worked out a second time, with the default order and no offset: the clone had
// other members than the group that shards, and weights came from the wrong ranks.
TEST(ProcessGroupsTest, GatherGroupIsTheShardingGroup) {
  for (const char* order : {"tp-cp-ep-dp-pp", "tp-ep-cp-pp-dp", "ep-tp-pp-dp", "pp-dp-ep-tp"}) {
    for (const int offset : {0, 16}) {
      for (const int replicas : {1, 2}) {
        const absl::StatusOr<ProcessGroups> groups = ProcessGroups::Make({.world = 16,
                                                                          .tensor = 2,
                                                                          .pipeline = 2,
                                                                          .expert = 2,
                                                                          .expert_tensor = 1,
                                                                          .replicas = replicas,
                                                                          .order = order,
                                                                          .rank_offset = offset,
                                                                          .separate_all_gather = true});
        ASSERT_TRUE(groups.ok()) << groups.status();
        EXPECT_EQ(groups->Find("dp_cp_ag")->clone_of, replicas > 1 ? "intra_dp_cp" : "dp_cp");
        EXPECT_EQ(groups->Find("expt_dp_ag")->clone_of, replicas > 1 ? "intra_expt_dp" : "expt_dp");
        for (const char* clone : {"dp_cp_ag", "expt_dp_ag"}) {
          EXPECT_EQ(groups->Find(clone)->groups, groups->Find(groups->Find(clone)->clone_of)->groups);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::parallel
