// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "plan/job_plan.h"
#include "schedules/program/outline.h"
#include "schedules/simulate/device_profile.h"

namespace tandem::plan {

// Parts of a step that CUDA graphs replay (schedules/passes/segments.h).

// By node of the outline, as in BuildOptions::replayed. Words of graphs.scope: attention, router, preprocess
// (the permutation of tokens to their experts), mlp, mamba; none: empty. Throws std::logic_error for a word
// that fits no node (Validate refuses such a spec).
std::vector<bool> ReplayedNodes(const schedules::Outline& outline, const std::vector<std::string>& words);

// What graphs replay of one step of a rank.
struct GraphSegments {
  // Segments with the same passes of the same kinds of nodes, in the order in which the first of them runs.
  struct Row {
    std::string passes;  // "forward attention, forward mlp", "24 x (forward attention, forward mlp)"
    int segments = 0;    // of one step
  };
  std::vector<Row> rows;
  int graphs = 0;  // that serve all of them
  int period = 0;  // microbatches after which a graph may be replayed again
  int passes_in_graphs = 0;
  int passes = 0;                // of all nodes, in one step
  int copies = 0;                // from and to rings, which graphs do not access
  int64_t more_arena_bytes = 0;  // than the same job takes without graphs; negative: less
};

// Requires a plan that replays a node. Plans the job without graphs, too.
GraphSegments GraphSegmentsOf(const JobPlan& plan);

// By the profile, in which 0 says that it does not know.
struct GraphCosts {
  // Of the host, in one step of a rank: to issue the passes that are in segments, and to launch graphs
  // instead. The host works beside the device: a step becomes shorter only by what the device waited for it.
  int64_t passes_issue_ns = 0;
  int64_t graphs_issue_ns = 0;
  int64_t device_bytes = 0;  // beside the arena
};

GraphCosts GraphCostsOf(const JobPlan& plan, const GraphSegments& segments,
                        const schedules::DeviceProfile& profile);

nlohmann::json GraphSegmentsToJson(const GraphSegments& segments, const GraphCosts& costs);

}  // namespace tandem::plan
