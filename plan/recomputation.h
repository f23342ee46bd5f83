// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/job_plan.h"
#include "schedules/program/outline.h"

namespace tandem::plan {

// What the backward of a job computes again instead of keeping it.

// By value of the outline, as in BuildOptions::recompute. Words of training.recompute: none: everything is
// kept; "layer": of every layer only what other layers read is kept, which is its input; or kinds of nodes
// ("attention", "mlp"), of which only what other nodes read is kept. Nodes outside of layers, losses and what
// nodes cannot compute again are kept. Throws std::logic_error for a word that fits no node (Validate refuses
// such a spec).
std::vector<bool> RecomputedValues(const schedules::Outline& outline, const std::vector<std::string>& words);

// What that changes in a step of one rank, beside the same job that keeps everything. Plans that job, too.
struct Recomputation {
  double flops = 0;         // more
  double all_flops = 0;     // of the passes of the job that keeps everything
  int64_t saved_bytes = 0;  // of the arena; negative: it is larger
};
Recomputation RecomputationOf(const JobPlan& plan);

}  // namespace tandem::plan
