// SPDX-License-Identifier: Apache-2.0
#include "parallel/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "parallel/process_groups.h"

namespace tandem::parallel {
namespace {

constexpr char kOrder[] = "tp-cp-ep-dp-pp";

Topology At(const GridSizes& sizes, int rank) { return TopologyOf(sizes, rank).value(); }

TEST(TopologyTest, SingleAxisRankIsTheDataRank) {
  for (const char* order : {kOrder, "tp-cp-dp-ep-pp", "dp-tp-cp-ep-pp"}) {
    for (int rank = 0; rank < 6; ++rank) {
      const Topology at = At({.world = 6, .expert = 2, .replicas = 3, .order = order}, rank);
      EXPECT_EQ(at.data, (AxisPlace{rank, 6})) << order;
      EXPECT_EQ(at.MicrobatchOf(2), 12 + rank);
    }
  }
}

TEST(TopologyTest, RanksOfOtherAxesShareAMicrobatch) {
  const GridSizes sizes = {.world = 24, .tensor = 2, .context = 2, .pipeline = 2, .order = kOrder};
  for (int rank = 0; rank < 24; ++rank) {
    const Topology at = At(sizes, rank);
    EXPECT_EQ(at.tensor, (AxisPlace{rank % 2, 2}));
    EXPECT_EQ(at.context, (AxisPlace{rank / 2 % 2, 2}));
    EXPECT_EQ(at.data, (AxisPlace{rank / 4 % 3, 3}));
    EXPECT_EQ(at.stage, (AxisPlace{rank / 12, 2}));
    EXPECT_EQ(at.MicrobatchOf(1), 3 + rank / 4 % 3);
    EXPECT_EQ(at.counting_ranks(), 6);
  }
  EXPECT_EQ(DataRanks(sizes), 3);
}

TEST(TopologyTest, PlacesAreThoseInTheGroups) {
  for (const char* order : {kOrder, "cp-dp-tp-ep-pp", "ep-dp-tp-cp-pp"}) {
    const GridSizes sizes = {.world = 48,
                             .tensor = 2,
                             .context = 2,
                             .pipeline = 2,
                             .expert = 4,
                             .expert_tensor = 1,
                             .order = order};
    const ProcessGroups groups = ProcessGroups::Make(sizes).value();
    const auto place_in = [&](const char* name, int rank) {
      for (const RankList& group : groups.Find(name)->groups) {
        const auto found = std::find(group.begin(), group.end(), rank);
        if (found != group.end()) {
          return AxisPlace{static_cast<int>(found - group.begin()), static_cast<int>(group.size())};
        }
      }
      return AxisPlace{-1, -1};
    };
    for (int rank = 0; rank < sizes.world; ++rank) {
      const Topology at = At(sizes, rank);
      EXPECT_EQ(at.tensor, place_in("tp", rank)) << order;
      EXPECT_EQ(at.context, place_in("cp", rank)) << order;
      EXPECT_EQ(at.data, place_in("dp", rank)) << order;
      EXPECT_EQ(at.stage, place_in("pp", rank)) << order;
      EXPECT_EQ(at.expert, place_in("ep", rank)) << order;
      EXPECT_EQ(at.expert_data, place_in("expt_dp", rank)) << order;
    }
  }
}

TEST(TopologyTest, EveryMicrobatchIsOfOneDataRank) {
  const GridSizes sizes = {.world = 12, .context = 2, .pipeline = 2, .order = kOrder};
  std::multiset<int64_t> microbatches;
  for (int rank = 0; rank < sizes.world; ++rank) {
    const Topology at = At(sizes, rank);
    for (int64_t round = 0; round < at.RoundsOf(9); ++round) {
      microbatches.insert(at.MicrobatchOf(round));
    }
  }
  for (int64_t g = 0; g < 9; ++g) {
    EXPECT_EQ(microbatches.count(g), 4) << g;  // two context ranks of two stages
  }
  EXPECT_EQ(microbatches.size(), 36);
}

TEST(TopologyTest, LastRoundMayBeShort) {
  const Topology at = At({.world = 4}, 3);
  EXPECT_EQ(at.RoundsOf(8), 2);
  EXPECT_EQ(at.RoundsOf(9), 3);
  EXPECT_EQ(at.MicrobatchesOf(3), 12);
}

TEST(TopologyTest, MicrobatchIsSharedInContextOrder) {
  EXPECT_EQ(SharingRanks({.world = 3}).value(), (std::vector<RankList>{{0}, {1}, {2}}));
  EXPECT_EQ(SharingRanks({.world = 8, .context = 2, .pipeline = 2, .order = kOrder}).value(),
            (std::vector<RankList>{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(SharingRanks({.world = 8, .context = 2, .pipeline = 2, .order = "dp-cp-tp-ep-pp"}).value(),
            (std::vector<RankList>{{0, 2, 4, 6}, {1, 3, 5, 7}}));
}

TEST(TopologyTest, OneRankOfAStageSavesItsStates) {
  std::vector<int> saving;
  for (int rank = 0; rank < 8; ++rank) {
    if (At({.world = 8, .context = 2, .pipeline = 2, .order = kOrder}, rank).saves_states()) {
      saving.push_back(rank);
    }
  }
  EXPECT_EQ(saving, (std::vector<int>{0, 4}));
}

TEST(TopologyTest, RefusesBadGridsAndRanks) {
  EXPECT_FALSE(TopologyOf({.world = 3, .tensor = 2}, 0).ok());
  EXPECT_EQ(DataRanks({.world = 3, .tensor = 2}), 0);
  EXPECT_EQ(TopologyOf({.world = 4}, 4).status().message(),
            "rank: 4 is not allowed; allowed: 0 to 3; the grid has no other rank");
}

}  // namespace
}  // namespace tandem::parallel
