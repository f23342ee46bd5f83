// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/grid_sizes.h"
#include "parallel/rank_grid.h"

namespace tandem::parallel {

// All groups of one name. A rank is in exactly one of them, with two exceptions: embd and pos_embd leave out
// the middle of the pipeline, and a link has only its two stages.
struct GroupKind {
  std::string name;              // "dp_cp"
  std::vector<RankList> groups;  // each with its members in group-rank order
  std::string clone_of;          // the earlier kind whose groups these are cloned from; or empty
  bool operator==(const GroupKind&) const = default;
};

// A possible name of groups, and their purpose in a few words.
struct GroupName {
  std::string name;
  std::string purpose;
};

// All names, in the order in which ranks create the groups. "hcp" stands for "hcp[0]", "hcp[1]", ...: the
// levels of a context group. "link" stands for "pp/0-1/values", "pp/1-0/gradients", ...: groups of two ranks
// of neighbouring stages, the sender first.
const std::vector<GroupName>& GroupNames();

// The process groups of a job: the same on every rank, in the order of creation. dp_cp is the first, because
// the first communicator gets the resources for reductions in the network. Immutable; each component gets its
// collection as an argument.
class ProcessGroups {
 public:
  // Requires that a clone comes after its parent and has the same members.
  explicit ProcessGroups(std::vector<GroupKind> kinds) : kinds_(std::move(kinds)) {}

  // Makes all groups that these sizes define. Without context_levels there is no hcp; without replicas no
  // inter_dp_cp and inter_dist_opt; without separate_all_gather no clones, and without experts no expt_dp_ag.
  // Returns InvalidArgument with the first violation that CheckGrid finds.
  static absl::StatusOr<ProcessGroups> Make(const GridSizes& sizes);

  // Makes only the groups of these names that the sizes define, and the groups that they are cloned from.
  // Also returns InvalidArgument if a name is not in GroupNames.
  static absl::StatusOr<ProcessGroups> Make(const GridSizes& sizes, const std::vector<std::string>& names);

  const std::vector<GroupKind>& kinds() const { return kinds_; }

  // Returns null if the collection has no groups of that name.
  const GroupKind* Find(std::string_view name) const;

 private:
  std::vector<GroupKind> kinds_;
};

}  // namespace tandem::parallel
