// SPDX-License-Identifier: Apache-2.0
#include "parallel/data_parallel_mesh.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "parallel/rank_grid.h"

namespace tandem::parallel {
namespace {

struct MeshNames {
  const char* of;  // the parameters that the mesh is for
  const char* whole;
  const char* inner;
  const char* outer;
  const char* gather;
};

constexpr MeshNames kDense = {"dense parameters", "dp_cp", "intra_dp_cp", "inter_dp_cp", "dp_cp_ag"};
constexpr MeshNames kExpert = {"experts", "expt_dp", "intra_expt_dp", "inter_dist_opt", "expt_dp_ag"};

absl::Status Missing(const MeshNames& names, const char* group, const char* why) {
  return absl::InvalidArgumentError(
      absl::StrCat("the process groups lack ", group, ", which ", names.of, " need ", why));
}

absl::Status Misplaced(const MeshNames& names, const char* group, const std::string& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("the mesh of ", names.of, ": group ", group, " is not ", expected, ", in its order"));
}

absl::StatusOr<DataParallelMesh> Mesh(const ProcessGroups& groups, const MeshNames& names) {
  const GroupKind* const whole = groups.Find(names.whole);
  if (whole == nullptr) {
    return Missing(names, names.whole, "to be sharded over");
  }
  const GroupKind* const outer = groups.Find(names.outer);
  const GroupKind* const inner = outer == nullptr ? whole : groups.Find(names.inner);
  if (inner == nullptr) {
    return Missing(names, names.inner, "inside a replica");
  }
  DataParallelMesh mesh;
  mesh.inner = static_cast<int>(inner->groups.front().size());
  mesh.inner_group = mesh.gather_group = inner->name;
  if (outer != nullptr) {
    mesh.outer = static_cast<int>(outer->groups.front().size());
    mesh.outer_group = names.outer;
    if (size_t{1} * mesh.inner * mesh.outer != whole->groups.front().size() ||
        inner->groups != SplitLevel(whole->groups, mesh.inner, 1)) {
      return Misplaced(names, names.inner, absl::StrCat("the neighbours in ", names.whole));
    }
    if (outer->groups != SplitLevel(whole->groups, mesh.outer, mesh.inner)) {
      return Misplaced(names, names.outer, absl::StrCat("every ", mesh.inner, "-th rank of ", names.whole));
    }
  }
  if (const GroupKind* const gather = groups.Find(names.gather)) {
    if (gather->groups != inner->groups) {
      return Misplaced(names, names.gather, absl::StrCat("a clone of ", inner->name));
    }
    mesh.gather_group = names.gather;
  }
  return mesh;
}

}  // namespace

absl::StatusOr<DataParallelMesh> DenseMesh(const ProcessGroups& groups) { return Mesh(groups, kDense); }
absl::StatusOr<DataParallelMesh> ExpertMesh(const ProcessGroups& groups) { return Mesh(groups, kExpert); }

}  // namespace tandem::parallel
