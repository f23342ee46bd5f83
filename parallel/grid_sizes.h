#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/rank_grid.h"

namespace tandem::parallel {

// How the ranks of a job are laid out. The data-parallel size follows: what is left of the world.
struct GridSizes {
  int world = 1;  // ranks that take part
  int tensor = 1;
  int context = 1;
  int pipeline = 1;
  int expert = 1;
  int expert_tensor = 0;                 // 0: as tensor
  int replicas = 1;                      // HSDP's outer size: copies of the sharded state
  std::string order = "tp-cp-ep-dp-pp";  // axes; the leftmost varies fastest
  int rank_offset = 0;                   // the first rank
  int virtual_pipeline = 1;              // pieces of the model that a rank interleaves
  std::vector<int> context_levels;       // sizes of a context group's levels, nearest ranks first; or empty
  bool separate_all_gather = false;      // a clone of each group that gathers parameters
};

// One thing that is wrong with the sizes, as a job spec's violations say it.
struct GridViolation {
  std::string field;  // of GridSizes: "order"
  std::string value;
  std::string allowed;
  std::string remedy;
};

// Every violation. Where it is empty, MakeGrids succeeds.
std::vector<GridViolation> CheckGrid(const GridSizes& sizes);

// "order: tp-tp is not allowed; allowed: tp, cp, ep, dp and pp, each at most once, joined by -; tp is there
// twice"
std::string ToText(const GridViolation& violation);

// Attention, the dense MLP and whatever has no experts live on the dense grid, which has a cp axis; experts
// on theirs, which has an ep axis. Both lay the same ranks out, in the same order, with the same pipelines.
struct Grids {
  GridSizes sizes;  // with expert_tensor filled in
  RankGrid dense;
  RankGrid expert;
  int dense_data = 1;   // size of the dense grid's dp axis
  int expert_data = 1;  // of the expert grid's
};

// InvalidArgument with the text of the first violation.
absl::StatusOr<Grids> MakeGrids(const GridSizes& sizes);

}  // namespace tandem::parallel
