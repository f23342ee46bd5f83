// SPDX-License-Identifier: Apache-2.0
#include "parallel/job_groups.h"

#include <algorithm>
#include <map>
#include <set>

#include "parallel/data_parallel_mesh.h"
#include "parallel/process_groups.h"
#include "platform/status_macros.h"

namespace tandem::parallel {
namespace {

std::vector<std::string> NamesOf(const GridSizes& sizes) {
  std::vector<std::string> names = {"dp_cp", "dp_cp_ag"};
  if (sizes.replicas > 1) {
    names.insert(names.end(), {"intra_dp_cp", "inter_dp_cp"});
  }
  if (sizes.expert > 1) {
    names.insert(names.end(), {"ep", "expt_dp", "expt_dp_ag"});
    if (sizes.replicas > 1) {
      names.insert(names.end(), {"intra_expt_dp", "inter_dist_opt"});
    }
  }
  if (sizes.pipeline > 1) {
    names.emplace_back("link");
  }
  names.insert(names.end(), {NormGroup(sizes), "report"});
  return names;
}

}  // namespace

bool IsLink(const std::string& name) { return name.starts_with("pp/"); }

int PlaceIn(const Group& group, int rank) {
  const auto member = std::find(group.ranks.begin(), group.ranks.end(), rank);
  return member == group.ranks.end() ? -1 : static_cast<int>(member - group.ranks.begin());
}

absl::StatusOr<ProcessGroups> JobGroups(const GridSizes& sizes) {
  GridSizes with_clones = sizes;
  with_clones.separate_all_gather = true;
  return ProcessGroups::Make(with_clones, NamesOf(sizes));
}

std::vector<Group> Listed(const ProcessGroups& groups) {
  std::vector<Group> list;
  std::map<std::string, int> first;  // index of the first group of each name
  for (const GroupKind& kind : groups.kinds()) {
    first[kind.name] = static_cast<int>(list.size());
    for (size_t i = 0; i < kind.groups.size(); ++i) {
      list.push_back({.name = kind.name,
                      .ranks = kind.groups[i],
                      .clone_of = kind.clone_of.empty() ? -1 : first[kind.clone_of] + static_cast<int>(i)});
    }
  }
  return list;
}

absl::StatusOr<std::vector<Group>> BuildProcessGroups(const GridSizes& sizes) {
  TANDEM_ASSIGN_OR_RETURN(const ProcessGroups groups, JobGroups(sizes));
  return Listed(groups);
}

std::vector<std::string> StepGroups(const GridSizes& sizes, bool gathers, bool counts_over_data) {
  const absl::StatusOr<ProcessGroups> groups = JobGroups(sizes);
  std::set<std::string> used = {NormGroup(sizes)};
  if (sizes.expert > 1) {
    used.insert("ep");
  }
  if (counts_over_data) {
    used.insert("dp_cp");  // which replicas use for nothing else
  }
  const auto add = [&](const absl::StatusOr<DataParallelMesh>& mesh) {
    if (!mesh.ok()) {
      return;
    }
    used.insert(mesh->outer_group);
    if (mesh->inner > 1) {
      used.insert(mesh->inner_group);
      used.insert(gathers ? mesh->gather_group : "");
    }
  };
  std::vector<std::string> names;
  if (!groups.ok()) {
    return names;
  }
  add(DenseMesh(*groups));
  if (sizes.expert > 1) {
    add(ExpertMesh(*groups));
  }
  for (const GroupKind& kind : groups->kinds()) {
    if (used.contains(kind.name) || IsLink(kind.name)) {
      names.push_back(kind.name);
    }
  }
  return names;
}

std::string NormGroup(const GridSizes& sizes) { return sizes.replicas > 1 ? "world" : "intra_dist_opt"; }

}  // namespace tandem::parallel
