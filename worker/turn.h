// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "worker/step.h"

namespace tandem::worker {

// The two halves of a Step; both change the state and add to the outcome.

// What an input says.
void Take(const Input& input, WorkerState& state, absl::Time now, Outcome& outcome);

// One round of what the state calls for. False: there was nothing to do.
bool Reconcile(WorkerState& state, absl::Time now, Outcome& outcome);

// The ranks of an attempt are wanted gone. The earlier of two stops wins; the first one's reason stays.
void StopAttempt(const AttemptKey& key, AttemptState& attempt, Stop stop, Outcome& outcome);

// The rank is gone, or never came. No cause: it finished.
void EndRank(const RankKey& key, AttemptState& attempt, RankState& rank, std::optional<v1::Cause> cause,
             absl::Time now, Outcome& outcome);

}  // namespace tandem::worker
