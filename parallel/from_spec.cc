// SPDX-License-Identifier: Apache-2.0
#include "parallel/from_spec.h"

#include "absl/strings/match.h"

namespace tandem::parallel {
namespace {

// Returns null if the spec has no options for the group.
const v1::NcclOptions* Find(const v1::NcclGroups& spec, const std::string& group) {
  const google::protobuf::FieldDescriptor* const field = v1::NcclGroups::descriptor()->FindFieldByName(group);
  if (field == nullptr || !spec.GetReflection()->HasField(spec, field)) {
    return nullptr;
  }
  return &static_cast<const v1::NcclOptions&>(spec.GetReflection()->GetMessage(spec, field));
}

void Override(GroupOptions& options, const v1::NcclOptions& own) {
  if (own.has_high_priority()) {
    options.high_priority = own.high_priority();
  }
  if (own.has_cga_cluster_size()) {
    options.cga_cluster_size = own.cga_cluster_size();
  }
  if (own.has_min_ctas()) {
    options.min_ctas = own.min_ctas();
  }
  if (own.has_max_ctas()) {
    options.max_ctas = own.max_ctas();
  }
  if (own.has_net_name()) {
    options.net_name = absl::EqualsIgnoreCase(own.net_name(), "ib") ? "IB" : "Socket";
  }
}

}  // namespace

std::map<std::string, GroupOptions> GroupOptionsOf(const v1::NcclGroups& spec, const ProcessGroups& groups) {
  std::map<std::string, GroupOptions> all;
  for (const GroupKind& kind : groups.kinds()) {
    const auto parent = all.find(kind.clone_of);
    GroupOptions options = parent == all.end() ? GroupOptions() : parent->second;
    if (const v1::NcclOptions* const own = Find(spec, kind.name)) {
      Override(options, *own);
    }
    if (options != GroupOptions()) {
      all[kind.name] = options;
    }
  }
  return all;
}

GridSizes GridOf(const v1::Parallelism& resolved) {
  return {.world = resolved.ranks(),
          .tensor = resolved.tensor(),
          .context = resolved.context(),
          .pipeline = resolved.pipeline(),
          .expert = resolved.expert(),
          .expert_tensor = resolved.expert_tensor(),
          .replicas = resolved.replicas(),
          .order = resolved.order(),
          .separate_all_gather = true};
}

}  // namespace tandem::parallel
