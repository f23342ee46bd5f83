// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "plan/job_plan.h"

namespace tandem::plan {

// Makes the plans of a job of several stages, one for each stage. `undivided` is the plan of one stage on as
// many ranks as each stage will have. `layers` has the number of layers of each chunk of the model, in order;
// chunk c is on stage c mod num_stages. What precedes the layers is in the first chunk, and what follows them
// in the last. Stages run 1F1B, interleaved if there are several chunks. All their programs have passed the
// check together, and the plans have the digest of all programs.
//
// On GPUs, a process runs every kernel once before it runs a stage: the first launch of a kernel loads it and
// waits for all that run on the GPU. Among them may be a receive, whose sender may wait likewise.
//
// Throws std::invalid_argument if the model cannot be divided like this: it has a tied embedding, another
// kind of schedule, or another number of layers.
std::vector<JobPlan> StagePlans(const JobPlan& undivided, int num_stages, const std::vector<int64_t>& layers);

// Whether the targets that the plan's stage loads count. Those of the last stage do; all its ranks have the
// loss.
bool CountsTargets(const JobPlan& plan);

}  // namespace tandem::plan
