// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "schedules/program/build_options.h"
#include "schedules/program/program.h"

namespace tandem::oracle {

// The ranks that one rank exchanges with, in the order of their group.
struct Group {
  std::vector<int> ranks;
  int index = 0;  // the rank's index in `ranks`
};

// The data parallel ranks of one stage, over which units are sharded and experts exchange tokens.
class Ranks {
 public:
  explicit Ranks(const schedules::BuildOptions& options);

  int size() const { return size_; }
  // The ranks that share a unit's shards (axis 0) or hold the same shard (axis 1).
  Group Of(schedules::UnitGroup group, int axis, int rank) const;
  // The ranks that exchange with `rank` in nodes of that process group: all ranks, or those that share its
  // experts, which are consecutive.
  Group OfNodes(const std::string& group, int rank) const;
  // The ranks that take part in an instruction; only `rank` if it has no communicator.
  Group Of(const schedules::Outline& outline, const schedules::Program& program,
           const schedules::Instruction& instruction, int rank) const;

 private:
  Group All(int rank) const;
  int Apart() const;  // consecutive ranks that hold other experts
  schedules::MeshAxes dense_;
  schedules::MeshAxes expert_;
  int size_;
};

}  // namespace tandem::oracle
