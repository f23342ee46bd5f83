// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "controller/core/decide.h"
#include "controller/core/state.h"

namespace tandem::controller {

// Checkpoints on request. A request is durable (CheckpointRequested), goes to the ranks with the assignment
// of their attempt (assignments.h), and is durable again when they have answered (CheckpointAnswered). One
// that is to end the job is answered by that end. A request dies with its attempt.

struct WantedCheckpoint {
  bool stop = false;   // the job ends after it
  std::string reason;  // of that end
  std::string actor;
};

// FailedPrecondition where the job has nowhere to save. A second request while one is not answered is the
// same one, unless it is the first to end the job. Requires a job that is RUNNING.
Decision RequestCheckpoint(const JobEntry& entry, const WantedCheckpoint& wanted, absl::Time now);

// NotFound, or FailedPrecondition where the job does not run.
Decision DecideAskCheckpoint(const State& state, const AskCheckpoint& ask, absl::Time now);

// What the ranks have answered, where they have.
std::optional<v1::Event> AnswerOf(const State& state, const JobEntry& entry, absl::Time now);

// What the ranks of the current attempt still have to act on; null: nothing.
const CheckpointWanted* WantedOf(const JobEntry& entry);

}  // namespace tandem::controller
