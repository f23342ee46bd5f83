#pragma once

#include <optional>

#include "absl/time/time.h"
#include "controller/core/state.h"

namespace tandem::controller {

// How close a cause is to the root of a failure: an unrequested signal or out of memory 0, a rank's own
// error 1, a worker that is lost or ends 2, a crash after a stop 3, a lost peer 4, requested 5. Consequences
// often arrive before causes.
int Distance(const v1::Cause& cause);

// Whether `a` is the earlier cause: nearer, then earlier in time, then of the lower rank.
bool Precedes(const v1::Cause& a, const v1::Cause& b);

// The first cause of all that is known to have gone wrong in the job's current attempt: failed and refused
// ranks, workers that are lost at `now`, ranks that disagree on what they run, ranks that are not ready in
// time. None while all is well.
std::optional<v1::Cause> FirstCause(const State& state, const JobEntry& entry, absl::Time now);

// Whether `cause` may be the mere consequence of one that is not heard of yet: a rank has lost a peer a
// moment ago, and another has not said yet how it ended. The dead are reaped after their peers have felt it.
bool IsWaitingForCause(const State& state, const JobEntry& entry, const v1::Cause& cause, absl::Time now);

// A worker that cannot answer for its ranks any more.
v1::Cause WorkerLost(const v1::Job& job, const std::string& worker, const std::string& what);

// Whether nothing of the rank runs, or can be asked for, any more, so that STOPPING need not wait for it.
enum class Accounting {
  kRunning,   // it may run
  kDead,      // its end is known
  kNeverRan,  // its worker never had it
  kLost,      // its worker is away, and has been for longer than the limits allow
};
Accounting Account(const State& state, const JobEntry& entry, const v1::RankSlot& slot, absl::Time now);

}  // namespace tandem::controller
