// SPDX-License-Identifier: Apache-2.0
#include "controller/core/progress.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "controller/core/state.h"
#include "proto/time.h"

namespace tandem::controller {
namespace {

// One rank that may still move.
struct Moving {
  const v1::RankSlot* slot = nullptr;
  const v1::RankStatus* status = nullptr;
  absl::Duration age;
};

// Smaller: further behind.
auto Position(const Moving& rank) {
  const auto& collectives = rank.status->collective_seq();
  return std::make_tuple(!rank.status->process_stopped(), rank.status->step(),
                         std::min(rank.status->phase(), v1::RANK_PHASE_STEPPING),
                         std::accumulate(collectives.begin(), collectives.end(), uint64_t{0}), -rank.age);
}

bool IsStalled(const Moving& rank, double step_seconds) {
  if (rank.status->process_stopped()) {
    return rank.age >= kShortestStall;
  }
  // Loading and saving take as long as they take.
  if (rank.status->phase() != v1::RANK_PHASE_STEPPING) {
    return false;
  }
  return rank.age >=
         (step_seconds > 0 ? std::max(kShortestStall, absl::Seconds(2 * step_seconds)) : kFirstStepStall);
}

double Seconds(absl::Time from, absl::Time to) { return std::max(0.0, absl::ToDoubleSeconds(to - from)); }

}  // namespace

std::optional<v1::Progress> ProgressOf(const State& state, const v1::Job& job, absl::Time now) {
  if (!HasRanks(job.state()) || job.attempts().empty()) {
    return std::nullopt;
  }
  const AttemptKey key = CurrentAttempt(job);
  std::optional<Moving> behind;
  double step_seconds = 0;
  for (const v1::RankSlot& slot : Current(job).slots()) {
    const v1::RankStatus* const status = StatusOf(state, slot, key);
    if (status == nullptr || !status->has_since_progress() || status->finished() || status->exited()) {
      continue;
    }
    const WorkerEntry& worker = state.workers.at(slot.worker());
    const auto heard = worker.heard.find(key);
    if (!worker.connected || heard == worker.heard.end()) {
      continue;
    }
    const Moving rank{&slot, status, proto::FromProto(status->since_progress()) + (now - heard->second)};
    step_seconds = std::max(step_seconds, status->step_seconds());
    if (!behind || Position(rank) < Position(*behind)) {
      behind = rank;
    }
  }
  if (!behind) {
    return std::nullopt;
  }
  v1::Progress out;
  out.set_rank(behind->slot->rank());
  out.set_worker(behind->slot->worker());
  *out.mutable_age() = proto::ToProto(std::max(absl::ZeroDuration(), behind->age));
  out.set_step(behind->status->step());
  out.set_whereabouts(behind->status->whereabouts());
  out.set_stopped(behind->status->process_stopped());
  out.set_stalled(IsStalled(*behind, step_seconds));
  return out;
}

std::string StallText(const v1::Progress& progress) {
  return absl::StrCat(
      "no progress for ",
      absl::FormatDuration(absl::Floor(proto::FromProto(progress.age()), absl::Seconds(1))), ": rank ",
      progress.rank(), " on worker ", progress.worker(),
      progress.stopped() ? " is stopped, by a signal or a debugger, " : " is behind the others, ",
      progress.whereabouts());
}

v1::TimeAccount AccountTime(const v1::Job& job, const StepTotals& totals, absl::Time now) {
  v1::TimeAccount out;
  const absl::Time created = proto::FromProto(job.created());
  const absl::Time end = job.has_ended() ? proto::FromProto(job.ended()) : now;
  out.set_total(Seconds(created, end));
  double running = 0;
  for (const v1::Attempt& attempt : job.attempts()) {
    const absl::Time over = attempt.has_ended() ? proto::FromProto(attempt.ended()) : end;
    const absl::Time ready = attempt.has_ready() ? proto::FromProto(attempt.ready()) : over;
    out.set_starting(out.starting() + Seconds(proto::FromProto(attempt.started()), ready));
    running += Seconds(ready, over);
  }
  out.set_waiting(std::max(0.0, out.total() - out.starting() - running));
  const double stepped = std::clamp(totals.seconds, 0.0, running);
  if (job.has_ended() && job.state() != v1::JOB_STATE_SUCCEEDED && totals.steps > 0) {
    const int64_t from = job.attempts().empty() ? 0 : job.attempts(job.attempts_size() - 1).resumed_step();
    const int64_t kept = std::max(from, job.checkpoints().last_step());
    const int64_t lost = std::clamp<int64_t>(job.last_step() - kept, 0, totals.steps);
    out.set_lost(stepped * static_cast<double>(lost) / static_cast<double>(totals.steps));
  }
  out.set_stepping(stepped - out.lost());
  const v1::CheckpointRecord& saves = job.checkpoints();
  out.set_checkpoints(
      std::min(saves.has_stall_seconds() ? saves.stall_seconds() : saves.seconds(), running - stepped));
  out.set_other(running - stepped - out.checkpoints());
  return out;
}

}  // namespace tandem::controller
