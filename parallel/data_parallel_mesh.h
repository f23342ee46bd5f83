// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/process_groups.h"

namespace tandem::parallel {

// The data-parallel mesh of one kind of unit, dense or expert: the sizes of its two axes, and the names of
// the groups along them in a ProcessGroups.
struct DataParallelMesh {
  int inner = 1;             // ranks that share a unit's shards
  int outer = 1;             // replicas, each of `inner` ranks
  std::string inner_group;   // along the inner axis; for reductions
  std::string gather_group;  // for all-gathers: the clone of inner_group, or inner_group if it has no clone
  std::string outer_group;   // along the outer axis; empty if outer is 1
  bool operator==(const DataParallelMesh&) const = default;
};

// Return InvalidArgument if the collection lacks a group that the mesh needs, or if the members of its groups
// do not form a grid: each inner group is a block of consecutive members of the group of all the mesh's
// ranks, and each outer group has the ranks at one position of all inner groups.
absl::StatusOr<DataParallelMesh> DenseMesh(const ProcessGroups& groups);
absl::StatusOr<DataParallelMesh> ExpertMesh(const ProcessGroups& groups);

}  // namespace tandem::parallel
