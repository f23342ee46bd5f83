// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "controller/core/decide.h"
#include "controller/core/state.h"

namespace tandem::controller {

// Checkpoints on request. A request is stored (CheckpointRequested), goes to the ranks with the assignment of
// their attempt (assignments.h), and its answer is stored, too (CheckpointAnswered). The end of the job
// answers a request that ends the job. A request ends with its attempt.

struct WantedCheckpoint {
  bool stop = false;   // the job ends after it
  std::string reason;  // of that end
  std::string actor;
};

// NotFound: `name` is neither the id nor the name of a live job.
Decision NoLiveJob(const std::string& name);

// FailedPrecondition if the job has no checkpoint directory. While a request is unanswered, a second one has
// no effect, unless it ends the job and the first one does not. Requires a RUNNING job.
Decision RequestCheckpoint(const JobEntry& entry, const WantedCheckpoint& wanted, absl::Time now);

// NotFound if there is no such job; FailedPrecondition if it is not running.
Decision DecideAskCheckpoint(const State& state, const AskCheckpoint& ask, absl::Time now);

// The ranks' answer, if they have answered.
std::optional<v1::Event> AnswerOf(const State& state, const JobEntry& entry, absl::Time now);

// The request that the ranks of the current attempt have not acted on yet; null: none.
const CheckpointWanted* WantedOf(const JobEntry& entry);

}  // namespace tandem::controller
