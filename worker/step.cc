// SPDX-License-Identifier: Apache-2.0
#include "worker/step.h"

#include <algorithm>

#include "platform/check.h"

namespace tandem::worker {

Outcome Step(WorkerState& state, const Input& input, absl::Time now) {
  // A stop needs 4: decide it, ask the ranks, record the end, report it.
  constexpr int kMaxRounds = 16;
  Outcome outcome;
  Take(input, state, now, outcome);
  for (int round = 0; Reconcile(state, now, outcome); ++round) {
    TANDEM_CHECK(round < kMaxRounds, "the worker's state comes to rest");
  }
  return outcome;
}

void StopAttempt(const AttemptKey& key, AttemptState& attempt, Stop stop, Outcome& outcome) {
  if (attempt.stop && attempt.stop->begin <= stop.begin) {
    return;
  }
  outcome.changes.push_back(AttemptStopped{key, stop.reason});
  if (attempt.stop) {
    attempt.stop->begin = stop.begin;
  } else {
    attempt.stop = std::move(stop);
  }
}

void RefuseAttempt(const AttemptKey& key, AttemptState& attempt, v1::Cause cause, Outcome& outcome) {
  attempt.refused = cause;
  attempt.dirty = true;
  for (auto& [number, rank] : attempt.ranks) {
    rank.life = Life::kGone;
  }
  outcome.changes.push_back(AttemptRefused{key, std::move(cause)});
}

void EndRank(const RankKey& key, AttemptState& attempt, RankState& rank, std::optional<v1::Cause> cause,
             absl::Time now, Outcome& outcome) {
  rank.life = Life::kGone;
  rank.gone_at = now;
  rank.cause = std::move(cause);
  attempt.dirty = true;
  attempt.rendezvous.Forget(key.rank);
  outcome.changes.push_back(RankGone{key, rank.cause});
}

absl::Time NextWake(const WorkerState& state) {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [key, attempt] : state.live) {
    if (!attempt.stop) {
      next = std::min(next, state.shutdown_at);
      if (attempt.preparation == Preparation::kChecking && !attempt.refused) {
        next = std::min(next, attempt.check_by);
      }
      continue;
    }
    for (const auto& [number, rank] : attempt.ranks) {
      if (rank.life != Life::kRunning || rank.kill_sent) {
        continue;
      }
      next = std::min(next, rank.stop_sent ? rank.kill_at : attempt.stop->begin);
    }
  }
  if (!state.exit_sent) {
    next = std::min(next, state.shutdown_at + kShutdownLimit);
  }
  return next;
}

}  // namespace tandem::worker
