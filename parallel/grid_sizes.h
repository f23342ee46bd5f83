// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/rank_grid.h"

namespace tandem::parallel {

// How the ranks of a job are laid out. The data-parallel size follows: the ranks of the world divided by
// tensor × context × pipeline, and for experts by expert_tensor × expert × pipeline.
struct GridSizes {
  int world = 1;  // ranks that take part
  int tensor = 1;
  int context = 1;
  int pipeline = 1;
  int expert = 1;
  int expert_tensor = 0;                 // 0: the same as tensor
  int replicas = 1;                      // HSDP's outer size: copies of the sharded state
  std::string order = "tp-cp-ep-dp-pp";  // names of axes; the leftmost varies fastest
  int rank_offset = 0;                   // the first rank
  int virtual_pipeline = 1;              // pieces of the model on one rank, which a pipeline interleaves
  std::vector<int> context_levels;       // sizes of the levels of a context group, innermost first; or empty
  bool separate_all_gather = false;      // clone each group that gathers parameters
};

// One error in the sizes. It has the same parts as an error in a job spec.
struct GridViolation {
  std::string field;  // the name of a member of GridSizes: "order"
  std::string value;
  std::string allowed;
  std::string remedy;
};

// Returns all violations. If there are none, MakeGrids succeeds.
std::vector<GridViolation> CheckGrid(const GridSizes& sizes);

// "order: tp-tp is not allowed; allowed: tp, cp, ep, dp and pp, each at most once, joined by -; tp is listed
// twice"
std::string ToText(const GridViolation& violation);

// The two grids over the same ranks: the dense grid, which has a cp axis, for everything except experts; and
// the expert grid, which has an ep axis. Both have the same order of axes and the same pipelines.
struct Grids {
  GridSizes sizes;  // with expert_tensor filled in
  RankGrid dense;
  RankGrid expert;
  int dense_data = 1;   // size of the dense grid's dp axis
  int expert_data = 1;  // size of the expert grid's dp axis
};

// Returns InvalidArgument with the text of the first violation, if there is one.
absl::StatusOr<Grids> MakeGrids(const GridSizes& sizes);

}  // namespace tandem::parallel
