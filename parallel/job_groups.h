// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/grid_sizes.h"
#include "parallel/process_groups.h"
#include "parallel/rank_grid.h"

namespace tandem::parallel {

// One communicator-to-be: the same list on every rank, in creation order.
struct Group {
  std::string name;   // "dp_cp": several groups share a name, a rank is in at most one of them
  RankList ranks;     // members in group-rank order
  int clone_of = -1;  // index of the live group that this one is a clone of, or -1
  bool operator==(const Group&) const = default;
};

// Where `rank` is among the group's members; -1: it is none of them.
int PlaceIn(const Group& group, int rank);

// Whether groups of that name are two ranks of neighbouring stages.
bool IsLink(const std::string& name);

// The groups that the ranks of a job create communicators from: those of its data-parallel meshes
// (data_parallel_mesh.h) with a clone each for gathers, whatever `sizes` says of clones; with stages links
// between them; with experts "ep"; the norm's; and "report". InvalidArgument with the first of CheckGrid's
// violations.
absl::StatusOr<ProcessGroups> JobGroups(const GridSizes& sizes);

// A collection's groups, one by one.
std::vector<Group> Listed(const ProcessGroups& groups);

// Both.
absl::StatusOr<std::vector<Group>> BuildProcessGroups(const GridSizes& sizes);

// Names of those of JobGroups(sizes) that the ranks communicate over with NCCL or Gloo in a step, in creation
// order. gathers: whether the strategy gives up parameters, or shards what it updates.
// counts_over_data: whether routers count tokens over all data. Empty where the sizes mean nothing.
std::vector<std::string> StepGroups(const GridSizes& sizes, bool gathers, bool counts_over_data);

// The group of all ranks that the gradient norm is exchanged over. One copy of the optimizer's state is not
// all of them where there are replicas.
std::string NormGroup(const GridSizes& sizes);

}  // namespace tandem::parallel
