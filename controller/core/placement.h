// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "controller/core/state.h"

namespace tandem::controller {

// Where the ranks of a queued job could go now.
struct Placement {
  std::vector<v1::RankSlot> slots;  // by rank; empty where it has to wait
  v1::Device device = v1::DEVICE_UNSPECIFIED;
  std::string reason;   // CamelCase: why it waits
  std::string message;  // "needs 4 slots, 2 free of 2 on 1 worker"
};

// All ranks or none, on free healthy slots of one device, ranks in order over the workers in name order and
// their slots in index order. Workers at a loopback address only take ranks together with workers of their
// own machine that are at one too: ranks elsewhere could not connect to theirs. All workers of a job are of
// one build. `auto` is cuda where the whole job fits on free GPUs now, else cpu; the first attempt's answer
// holds for all.
Placement Place(const State& state, const v1::Job& job);

}  // namespace tandem::controller
