// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "absl/time/time.h"
#include "worker/command.h"
#include "worker/input.h"
#include "worker/state.h"

namespace tandem::worker {

// The time between Stop and SIGKILL if the assignment does not give one.
inline constexpr absl::Duration kDefaultGrace = absl::Milliseconds(500);
// How long to wait before the other ranks are stopped if a rank has lost a peer. If that peer ran on this
// worker, its exit arrives within this time, and its own cause is reported instead of the stop.
inline constexpr absl::Duration kPeerLostPause = absl::Milliseconds(100);
// How long the controller, which sends a heartbeat every second, may be silent before the session is closed.
// gRPC's keepalive would find this out too, but its timers stop if the wall clock is set back.
inline constexpr absl::Duration kLongestSilence = absl::Seconds(15);
// The daemon exits this long after ranks are stopped, even if some have not ended (they die with it).
inline constexpr absl::Duration kShutdownLimit = absl::Seconds(3);
// How long the inspection of one path of a job may take before the attempt is refused.
inline constexpr absl::Duration kPathLimit = absl::Minutes(2);
// The largest number of unacknowledged notices; beyond it the oldest are dropped (their checkpoints stay on
// disk).
inline constexpr size_t kMaxNotices = 1000;

// One turn of the daemon: applies `input` to the state, then reconciles until the state requires nothing
// more. Deterministic: no clock, no lock, no I/O. An input about an attempt or a rank that is not live
// changes nothing.
Commands Step(WorkerState& state, const Input& input, absl::Time now);

// The next time at which Step has something to do even without an input (Woken).
absl::Time NextWake(const WorkerState& state);

// The functions below are used only by the files of the core: the two halves of a Step, and what these share.
// All of them change the state and add commands.

// Applies an input to the state.
void Take(const Input& input, WorkerState& state, absl::Time now, Commands& commands);

// Does one round of what the state requires. Returns false if nothing was left to do.
bool Reconcile(WorkerState& state, absl::Time now, Commands& commands);

// Stops the ranks of an attempt. After an earlier call, only the begin can change: to the earlier of the two.
void StopAttempt(const AttemptKey& key, AttemptState& attempt, Stop stop, Commands& commands);

// Refuses an attempt: none of its ranks will start.
void RefuseAttempt(const AttemptKey& key, AttemptState& attempt, v1::Cause cause, Commands& commands);

// Marks a rank as gone, or as never started. Without a cause, it has finished.
void EndRank(const RankKey& key, AttemptState& attempt, RankState& rank, std::optional<v1::Cause> cause,
             absl::Time now, Commands& commands);

}  // namespace tandem::worker
