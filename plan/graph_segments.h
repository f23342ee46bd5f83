// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "plan/job_plan.h"

namespace tandem::plan {

// What CUDA graphs of a scope would cover of one step (schedules/passes/segments.h). Capture is not built
// yet.
struct GraphSegments {
  // Segments with the same passes of the same kinds of nodes, in the order in which the first of them runs.
  struct Row {
    std::string passes;  // "backward-input attention, backward-weight attention"
    int segments = 0;    // of one step
    int graphs = 0;      // that serve them
  };
  std::vector<Row> rows;
  int passes_in_graphs = 0;
  int passes = 0;         // of all nodes, in one step
  int ring_operands = 0;  // to be copied by instructions outside
};

// scope: words with commas between them: attention, router, preprocess (the permutation of tokens to their
// experts), mlp. InvalidArgument for another word, or if the model has no node of one.
absl::StatusOr<GraphSegments> GraphSegmentsOf(const JobPlan& plan, absl::string_view scope);

nlohmann::json GraphSegmentsToJson(const GraphSegments& segments);

}  // namespace tandem::plan
