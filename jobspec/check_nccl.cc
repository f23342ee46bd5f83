// SPDX-License-Identifier: Apache-2.0

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "jobspec/checks.h"
#include "jobspec/field_rules.h"
#include "jobspec/schema.h"
#include "parallel/data_parallel_mesh.h"
#include "parallel/from_spec.h"
#include "parallel/grid_sizes.h"
#include "parallel/group_options.h"
#include "parallel/job_groups.h"

namespace tandem::jobspec {
namespace {

constexpr char kNccl[] = "parallelism.nccl";

void CheckNetName(FieldChecker& check, const std::string& group, const v1::NcclOptions& options) {
  if (options.has_net_name() && !absl::EqualsIgnoreCase(options.net_name(), "ib") &&
      !absl::EqualsIgnoreCase(options.net_name(), "socket")) {
    check.Refuse(JoinPath(group, "net_name"), "use one of these");
  }
}

// A clone's options are its own and its parent's together. What it says nothing of is refused with the
// parent.
void CheckCtas(FieldChecker& check, const parallel::ProcessGroups& groups) {
  const v1::NcclGroups& nccl = check.spec().parallelism().nccl();
  for (const auto& [name, options] : parallel::GroupOptionsOf(nccl, groups)) {
    const std::string group = JoinPath(kNccl, name);
    const bool says_min = check.IsWritten(JoinPath(group, "min_ctas"));
    const bool says_max = check.IsWritten(JoinPath(group, "max_ctas"));
    if (!options.min_ctas || !options.max_ctas || *options.min_ctas <= *options.max_ctas ||
        (!says_min && !says_max)) {
      continue;
    }
    check.Refuse(JoinPath(group, says_min ? "min_ctas" : "max_ctas"),
                 absl::StrCat(says_min ? *options.min_ctas : *options.max_ctas),
                 says_min ? absl::StrCat("at most max_ctas ", *options.max_ctas)
                          : absl::StrCat("at least min_ctas ", *options.min_ctas),
                 says_min && says_max
                     ? "use a smaller min_ctas, or a larger max_ctas"
                     : absl::StrCat(says_min ? "use a smaller min_ctas, or give max_ctas here too"
                                             : "use a larger max_ctas, or give min_ctas here too",
                                    ": a group for gathers takes what is left out from the group that it is "
                                    "a clone of"));
  }
}

// Whether replicas gather over this group and reduce over it too, by a communicator each.
bool IsTwoCommunicators(const v1::JobSpec& spec, const parallel::ProcessGroups& groups,
                        const std::string& name) {
  const auto is_outer = [&](const absl::StatusOr<parallel::DataParallelMesh>& mesh) {
    return mesh.ok() && mesh->outer_group == name;
  };
  return spec.parallelism().fsdp().strategy() == v1::STRATEGY_HFSDP &&
         (is_outer(parallel::DenseMesh(groups)) ||
          (spec.parallelism().expert() > 1 && is_outer(parallel::ExpertMesh(groups))));
}

// Collectives of all groups may run at once (parallel/group_options.h). Counts the communicators that move
// much; ranks count those that move numbers too when they start.
void CheckAllCtas(FieldChecker& check, const parallel::ProcessGroups& groups,
                  const std::vector<std::string>& used) {
  constexpr int kMost = parallel::kMultiprocessors - parallel::kSpareMultiprocessors;
  const auto options = parallel::GroupOptionsOf(check.spec().parallelism().nccl(), groups);
  int ctas = 0;
  for (const std::string& name : used) {
    const auto own = options.find(name);
    ctas += (IsTwoCommunicators(check.spec(), groups, name) ? 2 : 1) *
            parallel::BoundOfCtas(own == options.end() ? parallel::GroupOptions() : own->second,
                                  name == "ep" ? "dispatch" : "reduce");
  }
  if (ctas > kMost) {
    check.Refuse(kNccl, absl::StrCat("up to ", ctas, " thread blocks at once"),
                 absl::StrCat("at most ", kMost, " over all groups, of a GPU's ", parallel::kMultiprocessors,
                              " multiprocessors"),
                 absl::StrCat("they could wait for each other forever: lower max_ctas (min_ctas or "
                              "cga_cluster_size without it count as ",
                              parallel::kMostCtas, ")"));
  }
}

}  // namespace

void CheckNccl(FieldChecker& check) {
  const v1::JobSpec& spec = check.spec();
  if (!spec.parallelism().has_nccl()) {
    return;
  }
  if (check.IsOk({"resources.device"}) && spec.resources().device() != v1::DEVICE_CUDA) {
    check.Forbid(kNccl, absl::StrCat("resources.device is ", ValueText(FindValue(spec, "resources.device")),
                                     check.Origin("resources.device"),
                                     ", and ranks on CPUs communicate over TCP, which has no such options: "
                                     "omit the block, or use device: cuda"));
    return;
  }
  const parallel::GridSizes sizes = parallel::GridOf(spec.parallelism());
  if (!check.IsOkWithin("parallelism") || !parallel::CheckGrid(sizes).empty()) {
    return;
  }
  const std::vector<std::string> used =
      parallel::StepGroups(sizes, /*gathers=*/spec.parallelism().fsdp().strategy() != v1::STRATEGY_REPLICATE,
                           spec.model().moe().router_aux_loss_scope() == v1::BALANCE_SCOPE_GLOBAL ||
                               spec.model().moe().router_bias_update_rate() > 0);
  const v1::NcclGroups& nccl = spec.parallelism().nccl();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  nccl.GetReflection()->ListFields(nccl, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    const std::string name(field->name());
    const std::string path = JoinPath(kNccl, name);
    if (!absl::c_linear_search(used, name)) {
      check.Refuse(path, absl::StrJoin(used, ", "),
                   "this job has no communicator of that group: omit it, or use one of these");
      continue;
    }
    CheckNetName(check, path,
                 static_cast<const v1::NcclOptions&>(nccl.GetReflection()->GetMessage(nccl, field)));
  }
  CheckCtas(check, *parallel::JobGroups(sizes));
  CheckAllCtas(check, *parallel::JobGroups(sizes), used);
}

}  // namespace tandem::jobspec
