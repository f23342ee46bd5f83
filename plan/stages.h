// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "plan/job_plan.h"

namespace tandem::plan {

// The plans of a job of several stages, one a stage. undivided: the plan of one stage on as many ranks as
// each of them will have. layers: of each chunk of the model, in order; chunk c is on stage c mod num_stages.
// What is before the layers is in the first chunk, what is behind them in the last. Stages run 1F1B, with
// several chunks interleaved; all their programs have passed the check together. The plans have the digest of
// all programs.
//
// Throws std::invalid_argument where the model cannot be divided so: a tied embedding, a schedule of another
// kind, a number of layers that is not the model's.
std::vector<JobPlan> StagePlans(const JobPlan& undivided, int num_stages, const std::vector<int64_t>& layers);

// Whether the targets that the plan's stage loads count: those of the last stage, of which all have the loss.
bool CountsTargets(const JobPlan& plan);

}  // namespace tandem::plan
