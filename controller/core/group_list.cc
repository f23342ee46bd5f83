#include "controller/core/group_list.h"

#include <algorithm>

#include "parallel/process_groups.h"

namespace tandem::controller {

absl::StatusOr<std::vector<v1::GroupList>> GroupsOf(const v1::JobSpec& resolved) {
  const v1::Parallelism& axes = resolved.parallelism();
  parallel::GridSizes sizes;
  sizes.world = std::max(1, axes.ranks());
  sizes.tensor = std::max(1, axes.tensor());
  sizes.context = std::max(1, axes.context());
  sizes.pipeline = std::max(1, axes.pipeline());
  sizes.expert = std::max(1, axes.expert());
  sizes.expert_tensor = axes.expert_tensor() > 0 ? axes.expert_tensor() : sizes.tensor;
  sizes.replicas = std::max(1, axes.replicas());
  if (!axes.order().empty()) {
    sizes.order = axes.order();
  }
  absl::StatusOr<std::vector<parallel::Group>> groups = parallel::BuildProcessGroups(sizes);
  if (!groups.ok()) {
    return groups.status();
  }
  std::vector<v1::GroupList> out;
  for (const parallel::Group& group : *groups) {
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
