// SPDX-License-Identifier: Apache-2.0
#include "fsdp/unit_mesh.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem::fsdp {
namespace {

Layout LayoutOf(int64_t elements) {
  return MakeLayout({{.name = "w", .shape = {elements}}}, /*element_bytes=*/4);
}

// Of every rank, inner ranks first.
std::vector<UnitMesh> Ranks(UnitMesh mesh) {
  std::vector<UnitMesh> ranks;
  for (mesh.outer_rank = 0; mesh.outer_rank < mesh.outer; ++mesh.outer_rank) {
    for (mesh.inner_rank = 0; mesh.inner_rank < mesh.inner; ++mesh.inner_rank) {
      ranks.push_back(mesh);
    }
  }
  return ranks;
}

TEST(UnitMeshTest, DataAreCutInnerFirstThenOuter) {
  const Layout layout = LayoutOf(384);  // six granules
  UnitMesh mesh{.inner = 2, .inner_rank = 1, .outer = 3, .outer_rank = 2};
  EXPECT_EQ(PieceElements(layout, mesh), 64);
  EXPECT_EQ(ShardRange(layout, mesh), (Range{192, 384}));
  EXPECT_EQ(PieceRange(layout, mesh), (Range{320, 384})) << "piece 1 * 3 + 2, not 2 * 2 + 1";
  mesh.outer_rank = 0;
  EXPECT_EQ(PieceRange(layout, mesh), (Range{192, 256}));
}

TEST(UnitMeshTest, HeldRangeFollowsTheOptimizersAxes) {
  const Layout layout = LayoutOf(256);
  UnitMesh mesh{.inner = 2, .inner_rank = 1, .outer = 2, .outer_rank = 0};
  EXPECT_EQ(HeldRange(layout, mesh), (Range{128, 256}));
  EXPECT_EQ(AccumulatorRange(layout, mesh), (Range{128, 256}));
  mesh.outer_shards_optimizer = true;
  EXPECT_EQ(HeldRange(layout, mesh), (Range{128, 192}));
  EXPECT_EQ(AccumulatorRange(layout, mesh), (Range{128, 256})) << "the inner group's sum";
  mesh = {.inner = 4, .inner_rank = 3, .inner_shards_optimizer = false};
  EXPECT_EQ(HeldRange(layout, mesh), (Range{0, 256}));
  EXPECT_EQ(AccumulatorRange(layout, mesh), (Range{0, 256}));
}

TEST(UnitMeshTest, PiecesPartitionTheUnit) {
  for (const int64_t elements : {1, 64, 100, 1000, 4097}) {
    const Layout layout = LayoutOf(elements);
    for (int inner = 1; inner <= 5; ++inner) {
      for (int outer = 1; outer <= 3; ++outer) {
        for (const auto& [inner_shards, outer_shards] :
             {std::pair{true, false}, {true, true}, {false, false}}) {
          SCOPED_TRACE(testing::Message() << elements << " elements, " << inner << " x " << outer);
          std::vector<int> owners(layout.elements);
          std::vector<int> counted(layout.elements);
          for (const UnitMesh& rank : Ranks({.inner = inner,
                                      .outer = outer,
                                      .inner_shards_optimizer = inner_shards,
                                      .outer_shards_optimizer = outer_shards})) {
            const Range piece = PieceRange(layout, rank);
            ASSERT_EQ(piece.size() % kGranule, 0);
            ASSERT_EQ(Intersect(piece, HeldRange(layout, rank)), piece) << "a rank holds what it owns";
            ASSERT_EQ(Intersect(piece, ShardRange(layout, rank)), piece);
            ASSERT_EQ(HeldRange(layout, rank).size(),
                      HeldRange(layout, {.inner = inner,
                                         .outer = outer,
                                         .inner_shards_optimizer = inner_shards,
                                         .outer_shards_optimizer = outer_shards})
                          .size());
            const Range owned = WithoutPadding(layout, piece);
            for (int64_t i = owned.begin; i < owned.end; ++i) {
              ++owners[i];
            }
            const Range held = WithoutPadding(layout, HeldRange(layout, rank));
            for (int64_t i = held.begin; CountsHeld(rank) && i < held.end; ++i) {
              ++counted[i];
            }
          }
          ASSERT_EQ(owners, std::vector<int>(layout.elements, 1));
          ASSERT_EQ(counted, std::vector<int>(layout.elements, 1));
          ASSERT_LT(PaddedElements(layout, {.inner = inner, .outer = outer}) - layout.elements,
                    kGranule * inner * outer);
        }
      }
    }
  }
}

TEST(UnitMeshTest, LastRanksOfASmallUnitOwnNothing) {
  const Layout layout = LayoutOf(100);
  EXPECT_EQ(layout.elements, 128);
  const auto owned = [&](int rank) {
    return WithoutPadding(layout, PieceRange(layout, {.inner = 4, .inner_rank = rank}));
  };
  EXPECT_EQ(owned(1), (Range{64, 128}));
  EXPECT_TRUE(owned(2).empty());
  EXPECT_TRUE(owned(3).empty());
}

}  // namespace
}  // namespace tandem::fsdp
