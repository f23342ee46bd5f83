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
// On GPUs, a process must have run every kernel once on each GPU before it runs a stage: the first launch of
// a kernel loads it, for which it waits until all running kernels of the GPU have ended. One of them may be a
// receive, whose sender may wait in the same way for this rank, so that both wait forever.
//
// Throws std::invalid_argument if there are fewer than 2 stages, if the stages do not have equally many
// chunks, if the job's schedule is not sequential, or if the model has a tied embedding, another number of
// layers, or values that cannot cross stages (DivideIntoStages). Throws std::logic_error if the check refuses
// the programs (a bug of ours).
std::vector<JobPlan> StagePlans(const JobPlan& undivided, int num_stages, const std::vector<int64_t>& layers);

// Whether the ranks of the plan's stage count the targets that the loss ignores in what they load
// (fsdp::NormTerms::uncounted). True only for the last stage, which computes the loss, so that each target
// counts once.
bool CountsTargets(const JobPlan& plan);

}  // namespace tandem::plan
