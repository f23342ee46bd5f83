#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/process_groups.h"

namespace tandem::parallel {

// The data-parallel axes of one kind of unit, dense or expert, and the groups along them. Names are of a
// ProcessGroups.
struct DataParallelMesh {
  int inner = 1;             // ranks that share a unit's shards
  int outer = 1;             // replicas of those
  std::string whole_group;   // all of them: "dp_cp"
  std::string inner_group;   // along the inner axis; reduces
  std::string gather_group;  // gathers parameters: the clone of inner_group, or itself where there is none
  std::string outer_group;   // along the outer axis; empty where outer is 1
  bool operator==(const DataParallelMesh&) const = default;
};

// InvalidArgument where the collection lacks a group that the mesh needs, or where its groups do not lay the
// ranks of the whole group out as outer rows of inner neighbours.
absl::StatusOr<DataParallelMesh> DenseMesh(const ProcessGroups& groups);
absl::StatusOr<DataParallelMesh> ExpertMesh(const ProcessGroups& groups);

// The place of a rank's piece where both axes cut: inner pieces first, each of them then into outer ones.
// (Its rank in the whole group is another: outer_index × inner + inner_index.)
inline int ShardedPlace(const DataParallelMesh& mesh, int inner_index, int outer_index) {
  return inner_index * mesh.outer + outer_index;
}

}  // namespace tandem::parallel
