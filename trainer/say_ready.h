// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "device/device.h"
#include "plan/job_plan.h"
#include "trainer/rank.h"
#include "trainer/rank_text.h"
#include "trainer/training_state.h"

namespace tandem::trainer {

// The facts about a rank that can train.
struct ReadyRank {
  const plan::JobPlan& plan;
  const TrainingState::Start& start;
  const RankText& text;
  const std::string& kernels_digest;  // Operations::kernels_digest
  device::MemoryUse memory;
  bool is_first = false;  // whether it is the first of the job's ranks
};

// Reports to the worker that the rank is ready: the digests that all ranks must agree on, the step and
// checkpoint that it starts from, its memory, and the bytes that it sends in a step. The first rank adds a
// summary of its text, and a warning if debug.balanced_routing overrides the routers.
void SayReady(const ReadyRank& rank, const SendToWorker& send);

}  // namespace tandem::trainer
