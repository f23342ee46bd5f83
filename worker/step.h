// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "worker/command.h"
#include "worker/input.h"
#include "worker/state.h"

namespace tandem::worker {

// Between Stop and SIGKILL, where the assignment does not say.
inline constexpr absl::Duration kDefaultGrace = absl::Milliseconds(500);
// After a rank lost a peer: if the peer is one of ours, its own death is seen within this time, before the
// stop could be taken for its cause.
inline constexpr absl::Duration kPeerLostPause = absl::Milliseconds(100);
// What a session may be silent, on either side of the welcome: the controller sends a heartbeat a second.
// gRPC's keepalive says the same, but by timers that stand still after the wall clock was set back.
inline constexpr absl::Duration kLongestSilence = absl::Seconds(15);
// After this the daemon ends even where ranks cannot be killed (they die with it).
inline constexpr absl::Duration kShutdownLimit = absl::Seconds(3);
// What a path of a job may take to answer before its attempt is refused.
inline constexpr absl::Duration kPathLimit = absl::Minutes(2);
// The limit of unacknowledged checkpoints: the oldest are dropped (they stay on disk).
inline constexpr size_t kMaxNotices = 1000;

// Reason of an attempt that is refused since a path of its job does not answer here.
inline constexpr char kPathHangs[] = "PathHangs";
// Where a limit of the machine leaves it no thread or open file.
inline constexpr char kWorkerLimits[] = "WorkerLimits";
// Where the worker's disk is full, or fails.
inline constexpr char kWorkerDisk[] = "WorkerDisk";

// What one Step did beside changing the state.
struct Outcome {
  std::vector<Command> commands;  // for the shell to do, in this order
  std::vector<Change> changes;    // for the log, and for what the shell keeps beside the state
};

// One turn of the daemon: takes `input` into the state, then does all that the state calls for, until there
// is nothing left to do. Deterministic: no clock, no lock, no I/O. An input about an attempt or a rank that
// is not live changes nothing.
Outcome Step(WorkerState& state, const Input& input, absl::Time now);

// When Step would find more to do though nothing happened.
absl::Time NextWake(const WorkerState& state);

// For the files of the core: the two halves of a Step, and what both do. They change the state and add to the
// outcome.

// What an input says.
void Take(const Input& input, WorkerState& state, absl::Time now, Outcome& outcome);

// One round of what the state calls for. False: there was nothing to do.
bool Reconcile(WorkerState& state, absl::Time now, Outcome& outcome);

// The ranks of an attempt are wanted gone. The earlier of two stops wins; the first one's reason stays.
void StopAttempt(const AttemptKey& key, AttemptState& attempt, Stop stop, Outcome& outcome);

// None of its ranks may start.
void RefuseAttempt(const AttemptKey& key, AttemptState& attempt, v1::Cause cause, Outcome& outcome);

// The rank is gone, or never came. No cause: it finished.
void EndRank(const RankKey& key, AttemptState& attempt, RankState& rank, std::optional<v1::Cause> cause,
             absl::Time now, Outcome& outcome);

}  // namespace tandem::worker
