// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "plan/job_plan.h"

namespace tandem::trainer {

// The norms of one parameter of which this rank has a part that counts: elements that the rank updates, as
// the first of those that update them.
struct OwnNorm {
  size_t in_run = 0;     // place among RunRecord::norms
  int64_t in_table = 0;  // among the trained parameters of the job
};

// In the order of RunRecord::norms.
std::vector<OwnNorm> OwnNormsOf(const plan::JobPlan& plan, int rank);

}  // namespace tandem::trainer
