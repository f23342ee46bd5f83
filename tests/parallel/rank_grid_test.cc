// SPDX-License-Identifier: Apache-2.0
#include "parallel/rank_grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>

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

TEST(RankGridTest, OrdersDifferOnlyWhereTwoAxesAreLong) {
  for (const char* query : {"tp", "dp", "pp", "tp-dp", "tp-pp"}) {
    EXPECT_EQ(Groups({.tp = 2, .dp = 4}, "tp-ep-dp-pp", query),
              Groups({.tp = 2, .dp = 4}, "tp-pp-ep-dp", query));
    EXPECT_EQ(Groups({.tp = 2, .pp = 4}, "tp-ep-dp-pp", query),
              Groups({.tp = 2, .pp = 4}, "tp-pp-ep-dp", query));
  }
  EXPECT_NE(Groups({.tp = 2, .dp = 2, .pp = 2}, "tp-ep-dp-pp", "dp"),
            Groups({.tp = 2, .dp = 2, .pp = 2}, "tp-pp-ep-dp", "dp"));
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

// The same groups from the other end: ranks belong together when they agree on every axis outside the query.
std::vector<RankList> ByCoordinates(const std::vector<std::string>& order, const std::vector<int>& sizes,
                                    const std::string& query, int offset) {
  int world = 1;
  for (const int size : sizes) {
    world *= size;
  }
  std::vector<RankList> groups;
  std::vector<std::vector<int>> keys;
  for (int rank = 0; rank < world; ++rank) {
    std::vector<int> key;
    int rest = rank;
    for (size_t axis = 0; axis < order.size(); ++axis) {
      if (query.find(order[axis]) == std::string::npos) {
        key.push_back(rest % sizes[axis]);
      }
      rest /= sizes[axis];
    }
    const auto found = std::find(keys.begin(), keys.end(), key);
    if (found == keys.end()) {
      keys.push_back(key);
      groups.push_back({rank + offset});
    } else {
      groups[found - keys.begin()].push_back(rank + offset);
    }
  }
  return groups;
}

TEST(RankGridTest, AgreesWithTheCoordinatesOfEveryRank) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> order = {"tp", "cp", "ep", "dp", "pp"};
    std::shuffle(order.begin(), order.end(), random);
    RankGrid::Sizes sizes;
    std::vector<int> in_order;
    for (const std::string& name : order) {
      int size = 1 + static_cast<int>(random() % 4);
      if ((name == "ep" && sizes.cp > 1) || (name == "cp" && sizes.ep > 1)) {
        size = 1;
      }
      (name == "tp"   ? sizes.tp
       : name == "cp" ? sizes.cp
       : name == "ep" ? sizes.ep
       : name == "dp" ? sizes.dp
                      : sizes.pp) = size;
      in_order.push_back(size);
    }
    const std::string joined = order[0] + "-" + order[1] + "-" + order[2] + "-" + order[3] + "-" + order[4];
    const int offset = static_cast<int>(random() % 100);
    for (const char* query :
         {"tp", "cp", "dp", "pp", "ep", "dp-cp", "tp-pp", "tp-ep", "tp-ep-pp", "tp-dp-cp"}) {
      ASSERT_EQ(Groups(sizes, joined.c_str(), query, offset), ByCoordinates(order, in_order, query, offset))
          << joined << " " << query;
    }
  }
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
