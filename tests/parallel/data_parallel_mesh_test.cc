#include "parallel/data_parallel_mesh.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem::parallel {
namespace {

ProcessGroups Of(const GridSizes& sizes) { return ProcessGroups::Make(sizes).value(); }

// The collection without one kind, or with another list of groups for it.
ProcessGroups Edited(const ProcessGroups& groups, const std::string& name,
                     const std::vector<RankList>& lists) {
  std::vector<GroupKind> kinds;
  for (GroupKind kind : groups.kinds()) {
    if (kind.name == name) {
      kind.groups = lists;
    }
    if (!kind.groups.empty()) {
      kinds.push_back(kind);
    }
  }
  return ProcessGroups(std::move(kinds));
}

std::string Error(const absl::StatusOr<DataParallelMesh>& mesh) {
  EXPECT_EQ(mesh.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(mesh.status().message());
}

TEST(DataParallelMeshTest, OfOneReplicaHasOneAxis) {
  const ProcessGroups groups = Of({.world = 8, .expert = 2, .separate_all_gather = true});
  EXPECT_EQ(DenseMesh(groups).value(),
            (DataParallelMesh{
                .inner = 8, .whole_group = "dp_cp", .inner_group = "dp_cp", .gather_group = "dp_cp_ag"}));
  EXPECT_EQ(
      ExpertMesh(groups).value(),
      (DataParallelMesh{
          .inner = 4, .whole_group = "expt_dp", .inner_group = "expt_dp", .gather_group = "expt_dp_ag"}));
}

TEST(DataParallelMeshTest, OfReplicasHasTwo) {
  const ProcessGroups groups = Of({.world = 8, .expert = 2, .replicas = 2, .separate_all_gather = true});
  EXPECT_EQ(DenseMesh(groups).value(), (DataParallelMesh{.inner = 4,
                                                         .outer = 2,
                                                         .whole_group = "dp_cp",
                                                         .inner_group = "intra_dp_cp",
                                                         .gather_group = "dp_cp_ag",
                                                         .outer_group = "inter_dp_cp"}));
  EXPECT_EQ(ExpertMesh(groups).value(), (DataParallelMesh{.inner = 2,
                                                          .outer = 2,
                                                          .whole_group = "expt_dp",
                                                          .inner_group = "intra_expt_dp",
                                                          .gather_group = "expt_dp_ag",
                                                          .outer_group = "inter_dist_opt"}));
}

TEST(DataParallelMeshTest, WithoutACloneGathersShareTheGroup) {
  EXPECT_EQ(DenseMesh(Of({.world = 4})).value().gather_group, "dp_cp");
  EXPECT_EQ(DenseMesh(Of({.world = 4, .replicas = 2})).value().gather_group, "intra_dp_cp");
  EXPECT_EQ(ExpertMesh(Of({.world = 4, .expert = 2})).value().gather_group, "expt_dp");
}

// Experts have groups of their own for every use: the outer reduction of one once ran over the dense group.
TEST(DataParallelMeshTest, ExpertsShareNoGroupWithTheRest) {
  const ProcessGroups groups = Of({.world = 8, .expert = 2, .replicas = 2, .separate_all_gather = true});
  const DataParallelMesh dense = DenseMesh(groups).value();
  const DataParallelMesh expert = ExpertMesh(groups).value();
  const std::set<std::string> names = {dense.whole_group,   dense.inner_group,  dense.gather_group,
                                       dense.outer_group,   expert.whole_group, expert.inner_group,
                                       expert.gather_group, expert.outer_group};
  EXPECT_EQ(names.size(), 8);
}

TEST(DataParallelMeshTest, RefusesACollectionThatLacksAGroup) {
  const ProcessGroups groups = Of({.world = 8, .expert = 2, .replicas = 2});
  EXPECT_EQ(Error(DenseMesh(Edited(groups, "dp_cp", {}))),
            "the process groups lack dp_cp, which dense parameters need to be sharded over");
  EXPECT_EQ(Error(DenseMesh(Edited(groups, "intra_dp_cp", {}))),
            "the process groups lack intra_dp_cp, which dense parameters need inside a replica");
  EXPECT_EQ(Error(ExpertMesh(Edited(groups, "expt_dp", {}))),
            "the process groups lack expt_dp, which experts need to be sharded over");
  EXPECT_EQ(Error(ExpertMesh(Edited(groups, "intra_expt_dp", {}))),
            "the process groups lack intra_expt_dp, which experts need inside a replica");
}

TEST(DataParallelMeshTest, RefusesGroupsWhoseOrderIsNotTheMeshs) {
  const ProcessGroups groups = Of({.world = 8, .replicas = 2, .separate_all_gather = true});
  EXPECT_EQ(Error(DenseMesh(Edited(groups, "intra_dp_cp", {{0, 2, 1, 3}, {4, 5, 6, 7}}))),
            "the mesh of dense parameters: group intra_dp_cp is not the neighbours in dp_cp, in its order");
  EXPECT_EQ(Error(DenseMesh(Edited(groups, "inter_dp_cp", {{4, 0}, {1, 5}, {2, 6}, {3, 7}}))),
            "the mesh of dense parameters: group inter_dp_cp is not every 4-th rank of dp_cp, in its order");
  EXPECT_EQ(Error(DenseMesh(Edited(groups, "inter_dp_cp", {{0, 1, 2, 3}, {4, 5, 6, 7}}))),
            "the mesh of dense parameters: group intra_dp_cp is not the neighbours in dp_cp, in its order");
  EXPECT_EQ(Error(DenseMesh(Edited(groups, "dp_cp_ag", {{0, 1, 2, 3, 4, 5, 6, 7}}))),
            "the mesh of dense parameters: group dp_cp_ag is not a clone of intra_dp_cp, in its order");
}

// Cut inner first, a rank's piece is not at its rank in the whole group.
TEST(DataParallelMeshTest, PiecesOfBothAxesAreCutInnerFirst) {
  const DataParallelMesh mesh = {.inner = 4, .outer = 2};
  std::set<int> places;
  for (int inner = 0; inner < 4; ++inner) {
    for (int outer = 0; outer < 2; ++outer) {
      places.insert(ShardedPlace(mesh, inner, outer));
    }
  }
  EXPECT_EQ(places.size(), 8);
  EXPECT_EQ(ShardedPlace(mesh, /*inner_index=*/1, /*outer_index=*/0), 2);
  EXPECT_EQ(ShardedPlace(mesh, /*inner_index=*/0, /*outer_index=*/1), 1);
}

}  // namespace
}  // namespace tandem::parallel
