// SPDX-License-Identifier: Apache-2.0
#include "controller/core/group_list.h"

#include "parallel/job_groups.h"
#include "parallel/spec_grid.h"
#include "platform/status_macros.h"

namespace tandem::controller {

absl::StatusOr<std::vector<v1::GroupList>> GroupsOf(const v1::JobSpec& resolved) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<parallel::Group> groups,
                          parallel::BuildProcessGroups(parallel::GridOf(resolved.parallelism())));
  std::vector<v1::GroupList> out;
  for (const parallel::Group& group : groups) {
    v1::GroupList& list = out.emplace_back();
    list.set_name(group.name);
    list.mutable_ranks()->Assign(group.ranks.begin(), group.ranks.end());
    if (group.clone_of >= 0) {
      list.set_clone_of(group.clone_of);
    }
  }
  return out;
}

}  // namespace tandem::controller
