// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "device/device.h"
#include "plan/job_plan.h"
#include "trainer/rank.h"
#include "trainer/rank_text.h"
#include "trainer/training_state.h"

namespace tandem::trainer {

// What a rank has once it can train.
struct ReadyRank {
  const plan::JobPlan& plan;
  const TrainingState::Start& start;
  const RankText& text;
  const std::string& kernels_digest;  // Operations::kernels_digest
  device::MemoryUse memory;
  bool is_first = false;  // of the job's ranks
};

// Tells the worker that the rank is ready: the digests that all ranks must agree on, where it starts from,
// what it holds and will send. The first rank adds what its text is, and warns if routers only deal.
void SayReady(const ReadyRank& rank, const SendToWorker& send);

}  // namespace tandem::trainer
