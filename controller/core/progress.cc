// SPDX-License-Identifier: Apache-2.0
#include "controller/core/progress.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "absl/strings/str_cat.h"
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

}  // namespace tandem::controller
