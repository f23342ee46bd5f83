// SPDX-License-Identifier: Apache-2.0
#include "parallel/rank_grid.h"

#include <gtest/gtest.h>

namespace tandem::parallel {
namespace {

std::vector<RankList> Groups(const RankGrid::Sizes& sizes, const char* order, const char* query,
                             int offset = 0) {
  return RankGrid(sizes, order, offset).Groups(query);
}

TEST(RankGridTest, TheLeftmostAxisVariesFastest) {
  EXPECT_EQ(Groups({.tp = 2, .dp = 3, .pp = 4}, "tp-dp-pp", "dp"), (std::vector<RankList>{{0, 2, 4},
                                                                                          {1, 3, 5},
                                                                                          {6, 8, 10},
                                                                                          {7, 9, 11},
                                                                                          {12, 14, 16},
                                                                                          {13, 15, 17},
                                                                                          {18, 20, 22},
                                                                                          {19, 21, 23}}));
}

TEST(RankGridTest, TheOrderDecidesTheGroups) {
  const RankGrid::Sizes sizes = {.tp = 2, .dp = 2, .pp = 2};
  EXPECT_EQ(Groups(sizes, "tp-pp-dp", "dp"), (std::vector<RankList>{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(Groups(sizes, "tp-pp-dp", "tp-pp"), (std::vector<RankList>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(Groups(sizes, "tp-pp-dp", "pp"), (std::vector<RankList>{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
}

TEST(RankGridTest, TheOffsetIsAddedToEveryRank) {
  EXPECT_EQ(Groups({.tp = 2, .dp = 2, .pp = 2}, "tp-cp-ep-dp-pp", "dp", 8),
            (std::vector<RankList>{{8, 10}, {9, 11}, {12, 14}, {13, 15}}));
}

TEST(RankGridTest, TheOrderOfTheQueryDoesNotMatter) {
  const RankGrid::Sizes sizes = {.tp = 2, .cp = 2, .dp = 3};
  EXPECT_EQ(Groups(sizes, "tp-cp-ep-dp-pp", "dp-cp"), Groups(sizes, "tp-cp-ep-dp-pp", "cp-dp"));
}

TEST(RankGridTest, AxisOfOneMayBeLeftOut) {
  EXPECT_EQ(Groups({.dp = 2}, "DP", "tp"), (std::vector<RankList>{{0}, {1}}));
}

// Users' mistakes are CheckGrid's; these would be ours.
TEST(RankGridTest, DiesOfWhatItCannotLayOut) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(Groups({.dp = 2}, "tp-xp-dp", "dp"), "an order names axes, each once");
  EXPECT_DEATH(Groups({.dp = 2}, "tp-pp", "dp"), "the order has every axis that is long");
  EXPECT_DEATH(Groups({.dp = 0}, "tp-dp", "dp"), "every axis has a size");
  EXPECT_DEATH(Groups({.cp = 2, .ep = 2}, "tp-cp-ep-dp-pp", "dp"), "experts have a grid of their own");
  EXPECT_DEATH(Groups({.tp = 1 << 20, .dp = 1 << 20}, "tp-cp-ep-dp-pp", "dp"), "ranks can be counted");
  EXPECT_DEATH(Groups({.dp = 2}, "dp", "dp", -1), "ranks count from 0");
}

TEST(RankGridTest, LaysOutALargeCluster) {
  const RankGrid::Sizes sizes = {.tp = 8, .cp = 2, .dp = 48, .pp = 14};
  const std::vector<RankList> groups = Groups(sizes, "tp-cp-ep-dp-pp", "dp-cp");
  ASSERT_EQ(groups.size(), 8 * 14);
  EXPECT_EQ(groups[0].size(), 96);
  EXPECT_EQ(groups[8][1], 8 * 96 + 8);
}

}  // namespace
}  // namespace tandem::parallel
