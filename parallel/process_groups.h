// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/grid_sizes.h"
#include "parallel/rank_grid.h"

namespace tandem::parallel {

// All groups of one name. Of every kind a rank is in one group; embd and pos_embd leave out the middle of the
// pipeline, and a link all but its two stages.
struct GroupKind {
  std::string name;              // "dp_cp"
  std::vector<RankList> groups;  // each with its members in group-rank order
  std::string clone_of;          // a kind before it, whose live groups these are clones of; or empty
  bool operator==(const GroupKind&) const = default;
};

// A name that a collection can have, and what its groups are for, in a few words.
struct GroupName {
  std::string name;
  std::string purpose;
};

// Every name, in the order in which all ranks create groups. "hcp" stands for "hcp[0]", "hcp[1]", ...: the
// levels of a context group; "link" for "pp/0-1/values", "pp/1-0/gradients", ...: two ranks of neighbouring
// stages in each, the one that sends first.
const std::vector<GroupName>& GroupNames();

// The process groups of a job: the same on every rank, in creation order. dp_cp is the first: resources for
// reductions in the network go to the first communicator. Immutable; each component gets the collection that
// it is to use as an argument.
class ProcessGroups {
 public:
  // Requires that a clone's parent comes before it, with the same members.
  explicit ProcessGroups(std::vector<GroupKind> kinds) : kinds_(std::move(kinds)) {}

  // Every group that has a meaning for these sizes. Absent: hcp without context_levels; inter_dp_cp and
  // inter_dist_opt without replicas; the clones without separate_all_gather, expt_dp_ag also without experts.
  // InvalidArgument with the first of CheckGrid's violations.
  static absl::StatusOr<ProcessGroups> Make(const GridSizes& sizes);

  // Only these names, as far as the sizes give them a meaning, and what they are clones of. InvalidArgument
  // also where a name is none of GroupNames.
  static absl::StatusOr<ProcessGroups> Make(const GridSizes& sizes, const std::vector<std::string>& names);

  const std::vector<GroupKind>& kinds() const { return kinds_; }

  // Null where the collection does not have it.
  const GroupKind* Find(std::string_view name) const;

 private:
  std::vector<GroupKind> kinds_;
};

}  // namespace tandem::parallel
