#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::parallel {

// Sizes of the axes of the rank grid. fsdp spec 1.1, 1.2: the leftmost token of `order` varies fastest.
struct GridSizes {
  int world = 1;
  int tensor = 1;
  int context = 1;
  int pipeline = 1;
  int expert = 1;
  int expert_tensor = 1;
  int replicas = 1;  // HSDP outer size
  std::string order = "tp-cp-ep-dp-pp";
  int rank_offset = 0;
};

// One communicator-to-be: the same list on every rank, in creation order.
struct Group {
  std::string name;        // "dp_cp": several groups share a name, a rank is in at most one of them
  std::vector<int> ranks;  // members in group-rank order
  int clone_of = -1;       // index in the collection: a clone of that live group, never a recomputation
  bool operator==(const Group&) const = default;
};

// The whole collection that the ranks create communicators for, in creation order: "dp_cp", its clone
// "dp_cp_ag" (gathers), "intra_dist_opt" (gradient norm), "report" (all ranks). With replicas, units are
// sharded over "intra_dp_cp", which "dp_cp_ag" is then a clone of, and reduced on over "inter_dist_opt";
// the gradient norm is of "world", all ranks, since those of intra_dist_opt are of one replica.
// InvalidArgument naming the sizes where they do not fit.
absl::StatusOr<std::vector<Group>> BuildProcessGroups(const GridSizes& sizes);

// Every group of fsdp spec 1.3 that has a meaning for these sizes, for `tandem groups` and tests.
absl::StatusOr<std::vector<Group>> AllProcessGroups(const GridSizes& sizes);

}  // namespace tandem::parallel
