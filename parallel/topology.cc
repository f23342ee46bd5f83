// SPDX-License-Identifier: Apache-2.0
#include "parallel/topology.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace tandem::parallel {
namespace {

Topology At(const Grids& grids, int rank) {
  const auto place = [&](const RankGrid& grid, const char* axis) {
    return AxisPlace{.index = grid.IndexOf(axis, rank), .size = grid.SizeOf(axis)};
  };
  return {.world = grids.sizes.world,
          .rank = rank,
          .tensor = place(grids.dense, "tp"),
          .context = place(grids.dense, "cp"),
          .data = place(grids.dense, "dp"),
          .stage = place(grids.dense, "pp"),
          .expert = place(grids.expert, "ep"),
          .expert_data = place(grids.expert, "dp"),
          .chunks = grids.sizes.virtual_pipeline};
}

}  // namespace

absl::StatusOr<Topology> TopologyOf(const GridSizes& sizes, int rank) {
  TANDEM_ASSIGN_OR_RETURN(const Grids grids, MakeGrids(sizes));
  const int end = sizes.rank_offset + sizes.world;
  if (rank < sizes.rank_offset || rank >= end) {
    return absl::InvalidArgumentError(absl::StrCat("rank: ", rank,
                                                   " is not allowed; allowed: ", sizes.rank_offset, " to ",
                                                   end - 1, "; the grid has no other rank"));
  }
  return At(grids, rank);
}

absl::StatusOr<std::vector<RankList>> SharingRanks(const GridSizes& sizes) {
  TANDEM_ASSIGN_OR_RETURN(const Grids grids, MakeGrids(sizes));
  std::vector<RankList> ranks(grids.dense_data, RankList(sizes.context * sizes.pipeline));
  for (int rank = sizes.rank_offset; rank < sizes.rank_offset + sizes.world; ++rank) {
    const Topology at = At(grids, rank);
    if (at.tensor.index == 0) {
      ranks[at.data.index][at.stage.index * sizes.context + at.context.index] = rank;
    }
  }
  return ranks;
}

int DataRanks(const GridSizes& sizes) {
  const absl::StatusOr<Grids> grids = MakeGrids(sizes);
  return grids.ok() ? grids->dense_data : 0;
}

}  // namespace tandem::parallel
