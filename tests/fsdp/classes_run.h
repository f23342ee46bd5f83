// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "device/device.h"
#include "fsdp/shard_kernels.h"
#include "fsdp/unit_shard.h"

namespace tandem::fsdp::test {

// How a unit is placed, and whether its gradients are accumulated in full before they are reduced.
struct Placed {
  std::string strategy;
  UnitMesh mesh;  // of no rank
  bool accumulates = false;
  int ranks() const { return mesh.inner * mesh.outer; }
};
std::vector<Placed> Placements();  // every strategy, of one to three ranks an axis

// What the ranks run on: each is a thread.
struct Machine {
  std::function<std::unique_ptr<device::Device>(int rank)> device;
  std::function<std::unique_ptr<comm::Communicator>(const std::string& group, int rank_in_group, int size,
                                                    int rank)>
      communicator;
  const ShardKernels& kernels;
};

// By role, the bytes of each class that has elements: "weights", "exp_avg", "exp_avg_sq", "gradients",
// "what nodes read", without gaps; "norm terms", "update norms".
using Bytes = std::map<std::string, std::vector<std::string>>;

// The state of each rank after a few steps of a unit with two classes of bf16 over fp32, one of fp32 and one
// without elements: of 13, 1 and 3 granules. Contributions depend on class, rank, step and microbatch; the
// second step is not applied. together: as one unit; otherwise each class as if it were the only one of its
// unit.
std::vector<Bytes> TrainClasses(const Placed& placed, const Machine& machine, bool together);

}  // namespace tandem::fsdp::test
