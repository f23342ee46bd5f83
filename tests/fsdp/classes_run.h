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
  UnitMesh mesh;  // its ranks are 0
  bool accumulates = false;
  int ranks() const { return mesh.inner * mesh.outer; }
};
std::vector<Placed> Placements();  // every strategy, with one to three ranks on an axis

// Makes what the ranks run on. Each rank is a thread.
struct Machine {
  std::function<std::unique_ptr<device::Device>(int rank)> device;
  std::function<std::unique_ptr<comm::Communicator>(const std::string& group, int rank_in_group, int size,
                                                    int rank)>
      communicator;
  const ShardKernels& kernels;
};

// The bytes of each class that has elements, by role: "weights", "exp_avg", "exp_avg_sq", "gradients" and
// "what nodes read" (all without gaps), "norm terms" and "update norms".
using Bytes = std::map<std::string, std::vector<std::string>>;

// Trains a unit for a few steps and returns the state of each rank. The unit has two classes of bf16 over
// fp32 (13 and 3 granules), one of fp32 (1 granule) and one without elements. Contributions depend on class,
// rank, step and microbatch; the second step is not applied. If not `together`, each class is a unit of its
// own.
std::vector<Bytes> TrainClasses(const Placed& placed, const Machine& machine, bool together);

}  // namespace tandem::fsdp::test
