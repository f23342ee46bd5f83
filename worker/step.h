// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "worker/command.h"
#include "worker/input.h"
#include "worker/state.h"

namespace tandem::worker {

// The time between Stop and SIGKILL if the assignment does not give one.
inline constexpr absl::Duration kDefaultGrace = absl::Milliseconds(500);
// How long to wait after a rank lost a peer. If the peer runs on this worker, its death is seen within this
// time, so that the stop is not reported as its cause.
inline constexpr absl::Duration kPeerLostPause = absl::Milliseconds(100);
// How long the controller may be silent, before and after its welcome; it sends a heartbeat every second.
// gRPC's keepalive would notice this too, but its timers stop if the wall clock is set back.
inline constexpr absl::Duration kLongestSilence = absl::Seconds(15);
// After this time the daemon exits even if ranks cannot be killed (they die with it).
inline constexpr absl::Duration kShutdownLimit = absl::Seconds(3);
// How long a path of a job may take to answer before its attempt is refused.
inline constexpr absl::Duration kPathLimit = absl::Minutes(2);
// The limit of unacknowledged checkpoints: the oldest are dropped (they stay on disk).
inline constexpr size_t kMaxNotices = 1000;

// The result of one Step beside the changed state.
struct Outcome {
  std::vector<Command> commands;  // for the shell to execute, in this order
  std::vector<Change> changes;    // for the log, and for data that the shell keeps outside the state
};

// One turn of the daemon: applies `input` to the state, then does everything that the state requires, until
// nothing is left to do. Deterministic: no clock, no lock, no I/O. An input about an attempt or a rank that
// is not live changes nothing.
Outcome Step(WorkerState& state, const Input& input, absl::Time now);

// The next time at which Step has something to do even without an input (Woken).
absl::Time NextWake(const WorkerState& state);

// Only for the files of the core: the two halves of a Step, and their shared functions. All change the state
// and add to the outcome.

// Applies an input to the state.
void Take(const Input& input, WorkerState& state, absl::Time now, Outcome& outcome);

// Does one round of what the state requires. Returns false if there was nothing to do.
bool Reconcile(WorkerState& state, absl::Time now, Outcome& outcome);

// Stops the ranks of an attempt. Of two stops the earlier time wins; the reason of the first call stays.
void StopAttempt(const AttemptKey& key, AttemptState& attempt, Stop stop, Outcome& outcome);

// Refuses an attempt: none of its ranks will start.
void RefuseAttempt(const AttemptKey& key, AttemptState& attempt, v1::Cause cause, Outcome& outcome);

// Marks a rank as gone, or as never started. No cause: it finished.
void EndRank(const RankKey& key, AttemptState& attempt, RankState& rank, std::optional<v1::Cause> cause,
             absl::Time now, Outcome& outcome);

}  // namespace tandem::worker
