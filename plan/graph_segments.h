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

// The segments of a step, which CUDA graphs replay (schedules/passes/segments.h).

// By node of the outline, whether it is replayed, as in BuildOptions::replayed. `words` are those of
// graphs.scope: attention, router, preprocess (the permutation of tokens to their experts), mlp, mamba (also
// gated delta nets). Empty if there are no words. Throws std::logic_error for a word that fits no node (which
// Validate refuses).
std::vector<bool> ReplayedNodes(const schedules::Outline& outline, const std::vector<std::string>& words);

// What graphs replay in one step of a rank.
struct GraphSegments {
  // Segments with the same passes of the same kinds of nodes. Rows have the order in which their first
  // segments run.
  struct Row {
    std::string passes;  // "forward attention, forward mlp", "24 x (forward attention, forward mlp)"
    int segments = 0;    // number in one step
  };
  std::vector<Row> rows;
  int graphs = 0;                // number of graphs that replay the segments of a step
  int period = 0;                // microbatches after which a graph is replayed again
  int passes_in_graphs = 0;      // passes of all segments in one step
  int launches_in_graphs = 0;    // launches of kernels in these passes, estimated by kind of node
  int passes = 0;                // passes of all nodes in one step, in segments or not
  int copies = 0;                // copies from and to rings, which graphs do not access
  int64_t more_arena_bytes = 0;  // arena beyond that of the same job without graphs; may be negative
};

// Requires a plan that replays a node. Also plans the job without graphs.
GraphSegments GraphSegmentsOf(const JobPlan& plan);

// Costs of graphs by the profile; 0: the profile does not know them.
struct GraphCosts {
  // The host's time in one step of a rank, to issue the passes of segments one by one, and to launch graphs
  // instead. The host works beside the device, so a step becomes shorter only by the time that the device
  // waited for the host.
  int64_t passes_issue_ns = 0;
  int64_t graphs_issue_ns = 0;
  int64_t device_bytes = 0;  // memory outside the arena
};

GraphCosts GraphCostsOf(const JobPlan& plan, const GraphSegments& segments,
                        const schedules::DeviceProfile& profile);

nlohmann::json GraphSegmentsToJson(const GraphSegments& segments, const GraphCosts& costs);

}  // namespace tandem::plan
