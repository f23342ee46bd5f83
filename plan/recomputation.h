// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/job_plan.h"
#include "schedules/program/outline.h"

namespace tandem::plan {

// What the backward of a job recomputes instead of keeping it.

// By value of the outline, whether it is recomputed, as in BuildOptions::recompute. `words` are those of
// training.recompute. Without words everything is kept. "layer" keeps of every layer only what other layers
// read, which is its input. A kind of node ("attention", "mlp") keeps of these nodes only what other nodes
// read. Nodes outside layers, losses, and what nodes cannot recompute are always kept. Throws
// std::logic_error for a word that fits no node (Validate refuses such a spec).
std::vector<bool> RecomputedValues(const schedules::Outline& outline, const std::vector<std::string>& words);

// What recomputation changes in a step of one rank, compared with the same job that keeps everything, which
// is planned as well.
struct Recomputation {
  double flops = 0;         // additional FLOPs
  double all_flops = 0;     // FLOPs of the passes of the job that keeps everything
  int64_t saved_bytes = 0;  // reduction of the arena; negative if it is larger
};
Recomputation RecomputationOf(const JobPlan& plan);

}  // namespace tandem::plan
