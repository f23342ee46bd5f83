// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/ranks.h"

#include <algorithm>

namespace tandem::oracle {

using schedules::UnitGroup;

Ranks::Ranks(const schedules::BuildOptions& options)
    : dense_(options.dense), expert_(options.expert), size_(options.dense.inner * options.dense.outer) {}

int Ranks::Apart() const { return std::max(1, size_ / (expert_.inner * expert_.outer)); }

Group Ranks::Of(UnitGroup group, int axis, int rank) const {
  const schedules::MeshAxes& mesh = group == UnitGroup::kExpert ? expert_ : dense_;
  const int apart = group == UnitGroup::kExpert ? Apart() : 1;
  const int logical = rank / apart;
  Group result;
  for (int other = rank % apart; other < size_; other += apart) {
    const int place = other / apart;
    if (axis == 0 ? place / mesh.inner == logical / mesh.inner : place % mesh.inner == logical % mesh.inner) {
      result.index = other == rank ? static_cast<int>(result.ranks.size()) : result.index;
      result.ranks.push_back(other);
    }
  }
  return result;
}

Group Ranks::All(int rank) const {
  Group all{.index = rank};
  for (int other = 0; other < size_; ++other) {
    all.ranks.push_back(other);
  }
  return all;
}

Group Ranks::OfNodes(const std::string& group, int rank) const {
  if (group == "dp_cp") {
    return All(rank);
  }
  const int first = rank / Apart() * Apart();
  Group result{.index = rank - first};
  for (int other = first; other < std::min(size_, first + Apart()); ++other) {
    result.ranks.push_back(other);
  }
  return result;
}

Group Ranks::Of(const schedules::Outline& outline, const schedules::Program& program,
                const schedules::Instruction& instruction, int rank) const {
  if (instruction.communicator < 0) {
    return {{rank}, 0};
  }
  const std::string& name = program.communicators[instruction.communicator].group;
  for (const UnitGroup group : {UnitGroup::kDense, UnitGroup::kExpert}) {
    const schedules::MeshAxes& mesh = group == UnitGroup::kDense ? dense_ : expert_;
    if (name == mesh.inner_group || name == mesh.gather_group) {
      return Of(group, 0, rank);
    }
    if (name == mesh.outer_group && (group == UnitGroup::kExpert || name != expert_.outer_group ||
                                     outline.units[instruction.target].group == group)) {
      return Of(group, 1, rank);
    }
  }
  return IsNodePass(instruction.opcode) ? OfNodes(name, rank) : All(rank);
}

}  // namespace tandem::oracle
