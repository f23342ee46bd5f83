// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "plan/job_plan.h"

namespace tandem::trainer {

// A parameter whose norm this rank contributes to. Of the ranks that update an element, only the first
// contributes it.
struct OwnNorm {
  size_t in_run = 0;     // index in RunRecord::norms
  int64_t in_table = 0;  // index among the trained parameters of the job
};

// In the order of RunRecord::norms.
std::vector<OwnNorm> OwnNormsOf(const plan::JobPlan& plan, int rank);

}  // namespace tandem::trainer
