// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "controller/core/state.h"

namespace tandem::controller {

// How far a cause is from the root of a failure: 0 an unrequested signal or out of memory, 1 a rank's own
// error, 2 a worker that is lost or ends, 3 a crash after a stop, 4 a lost peer, 5 requested. Needed because
// consequences often arrive before causes.
int DistanceFromRoot(const v1::Cause& cause);

// Whether `a` comes before `b`: nearer to the root, then earlier in time, then of the lower rank.
bool Precedes(const v1::Cause& a, const v1::Cause& b);

// The first cause among all known failures of the job's current attempt: failed and refused ranks, workers
// that are lost at `now`, ranks that disagree on what they run, ranks that are not ready in time. nullopt if
// nothing has failed.
std::optional<v1::Cause> FirstCause(const State& state, const JobEntry& entry, absl::Time now);

// Whether to wait because `cause` may be the consequence of a cause that is not reported yet: a rank has just
// lost a peer, and another rank has not yet reported how it ended. Peers notice a death before the worker
// reaps the process.
bool IsWaitingForCause(const State& state, const JobEntry& entry, const v1::Cause& cause, absl::Time now);

// Makes a cause that has no rank, worker or time.
v1::Cause MakeCause(v1::FailureClass failure, const std::string& reason, const std::string& message);

// The cause for a worker that can no longer report on its ranks.
v1::Cause WorkerLost(const v1::Job& job, const std::string& worker, const std::string& what);

// What has become of a rank. A job stays STOPPING while a rank is kRunning.
enum class RankFate {
  kRunning,   // it may run
  kDead,      // its end is known
  kNeverRan,  // its worker never received it
  kLost,      // its worker has been away for longer than the limits allow
};
RankFate FateOf(const State& state, const JobEntry& entry, const v1::RankSlot& slot, absl::Time now);

}  // namespace tandem::controller
