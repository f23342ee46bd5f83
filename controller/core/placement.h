// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "controller/core/state.h"

namespace tandem::controller {

// Where the ranks of a queued job could run now.
struct Placement {
  std::vector<v1::RankSlot> slots;  // by rank; empty if the job must wait
  v1::Device device = v1::DEVICE_UNSPECIFIED;
  std::string reason;   // CamelCase: why it waits
  std::string message;  // "needs 4 slots, 2 free of 2 on 1 worker"
};

// Places all ranks or none, on free healthy slots of one kind of device: ranks in order over the workers in
// name order, and their slots in index order. A worker with a loopback address shares a job only with workers
// of its own machine that have one too, because ranks elsewhere could not connect to its ranks. All workers
// of a job have the same build. `auto` means cuda if the whole job fits on free GPUs now, otherwise cpu;
// later attempts keep the device of the first.
Placement Place(const State& state, const v1::Job& job);

// Returns why a queued job cannot start before more workers register (reason BeyondCapacity):
// it needs more than all registered workers have, connected and free or not. Such a job does not hold up the
// jobs behind it. nullopt if the registered workers could run it at some time.
std::optional<std::string> WhyBeyondCapacity(const State& state, const v1::Job& job);

}  // namespace tandem::controller
