// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "controller/core/decide.h"
#include "controller/core/state.h"

namespace tandem::controller {

// Checkpoints on request. A request is stored as the event CheckpointRequested and reaches the ranks in the
// assignment of their attempt (assignments.h). Their answer is stored as CheckpointAnswered; a request with
// `stop` gets none, because the end of the job answers it. A request that is unanswered when its attempt ends
// is void.

// Returns the decision for a call about a job that is not live: NotFound, with `name`, which is neither the
// id nor the name of a live job.
Decision NoLiveJob(const std::string& name);

// Requests a checkpoint for `actor`. FailedPrecondition if the job has no checkpoint directory. While a
// request is unanswered, another one has no effect, unless only the new one has `stop`. Requires a RUNNING
// job.
Decision RequestCheckpoint(const JobEntry& entry, const v1::CheckpointRequested& wanted,
                           const std::string& actor, absl::Time now);

// Decides a user's request. NotFound if there is no such live job; FailedPrecondition if it is not RUNNING.
Decision DecideAskCheckpoint(const State& state, const AskCheckpoint& ask, absl::Time now);

// Returns the event of the ranks' answer to the open request, if they have answered.
std::optional<v1::Event> AnswerOf(const State& state, const JobEntry& entry, absl::Time now);

// Returns the open request of the current attempt; null if there is none.
const CheckpointWanted* WantedOf(const JobEntry& entry);

// Returns the event of a checkpoint or warning that a rank has noticed; none if the notice was sent before,
// is of an older attempt, or comes from a worker without a rank of the attempt. num_undecided: warnings of
// the same job that were decided together with this one and are not applied yet.
Decision DecideNotice(const State& state, const CheckpointNoticed& in, absl::Time now, int num_undecided = 0);

}  // namespace tandem::controller
