// SPDX-License-Identifier: Apache-2.0
#include "worker/step.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "platform/check.h"
#include "platform/log.h"

namespace tandem::worker {

Commands Step(WorkerState& state, const Input& input, absl::Time now) {
  // A stop takes 4 rounds: decide it, ask the ranks, record the end, report it.
  constexpr int kMaxRounds = 16;
  Commands commands;
  Take(input, state, now, commands);
  for (int round = 0; Reconcile(state, now, commands); ++round) {
    TANDEM_CHECK(round < kMaxRounds, "the worker's state comes to rest");
  }
  return commands;
}

void StopAttempt(const AttemptKey& key, AttemptState& attempt, Stop stop, Commands& commands) {
  if (attempt.stop && attempt.stop->begin <= stop.begin) {
    return;
  }
  commands.push_back(LogLine{.attempt = key, .text = absl::StrCat("stopping its ranks: ", stop.reason)});
  if (attempt.stop) {
    attempt.stop->begin = stop.begin;
  } else {
    attempt.stop = std::move(stop);
  }
}

void RefuseAttempt(const AttemptKey& key, AttemptState& attempt, v1::Cause cause, Commands& commands) {
  attempt.refused = cause;
  attempt.dirty = true;
  for (auto& [number, rank] : attempt.ranks) {
    rank.life = Life::kGone;
  }
  commands.push_back(LogLine{.level = platform::LogLevel::kWarning,
                             .attempt = key,
                             .text = "refused an attempt",
                             .cause = std::move(cause)});
}

void EndRank(const RankKey& key, AttemptState& attempt, RankState& rank, std::optional<v1::Cause> cause,
             absl::Time now, Commands& commands) {
  rank.life = Life::kGone;
  rank.gone_at = now;
  rank.cause = std::move(cause);
  attempt.dirty = true;
  attempt.rendezvous.Forget(key.rank);
  const bool is_failure = rank.cause && rank.cause->class_() != v1::FAILURE_CLASS_REQUESTED;
  commands.push_back(
      LogLine{.level = is_failure ? platform::LogLevel::kWarning : platform::LogLevel::kInfo,
              .attempt = key.attempt,
              .text = rank.cause ? "a rank is gone" : absl::StrCat("rank ", key.rank, " finished"),
              .cause = rank.cause});
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
