// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/grid_sizes.h"
#include "parallel/process_groups.h"
#include "parallel/rank_grid.h"

namespace tandem::parallel {

// A process group, from which its ranks create a communicator. All ranks have the same list, in the order of
// creation.
struct Group {
  std::string name;   // "dp_cp"; several groups may share a name, and a rank is in at most one of these
  RankList ranks;     // members in group-rank order
  int clone_of = -1;  // index of the group that this one is cloned from; -1: it is no clone
  bool operator==(const Group&) const = default;
};

// The index of `rank` among the group's members; -1: it is not a member.
int PlaceIn(const Group& group, int rank);

// Whether groups of that name are links: each has two ranks, of neighbouring stages.
bool IsLink(const std::string& name);

// The groups that the ranks of a job create communicators from: the groups of its data-parallel meshes
// (data_parallel_mesh.h), with clones for gathers whatever sizes.separate_all_gather says; links between
// stages, if there are several; "ep", if ranks share experts; the group of the gradient norm; and "report".
// Returns InvalidArgument with the first violation that CheckGrid finds.
absl::StatusOr<ProcessGroups> JobGroups(const GridSizes& sizes);

// All groups of a collection, in the order of creation.
std::vector<Group> Listed(const ProcessGroups& groups);

// Listed(JobGroups(sizes)).
absl::StatusOr<std::vector<Group>> BuildProcessGroups(const GridSizes& sizes);

// The names of the groups of JobGroups(sizes) over which ranks communicate with NCCL or Gloo in a step, in
// the order of creation. gathers: whether the strategy shards parameters, or what the optimizer updates.
// counts_over_data: whether routers count tokens over all data. Empty if the sizes are invalid.
std::vector<std::string> StepGroups(const GridSizes& sizes, bool gathers, bool counts_over_data);

// The name of the group of all ranks, over which the gradient norm is exchanged. With replicas it is "world",
// because "intra_dist_opt" then has the ranks of only one replica.
std::string NormGroup(const GridSizes& sizes);

}  // namespace tandem::parallel
