// SPDX-License-Identifier: Apache-2.0
#include "worker/state.h"

#include <algorithm>

#include "proto/time.h"
#include "worker/cause.h"

namespace tandem::worker {
namespace {

v1::RankPhase PhaseOf(const RankState& rank) {
  switch (rank.life) {
    case Life::kWaiting:
      return v1::RANK_PHASE_UNSPECIFIED;
    case Life::kGone:
      return v1::RANK_PHASE_EXITED;
    case Life::kStarting:
    case Life::kRunning:
      break;
  }
  if (rank.finished) {
    return v1::RANK_PHASE_FINISHED;
  }
  // The page is sampled, so it may be older than the message.
  if (rank.ready && rank.sample.phase < v1::RANK_PHASE_READY) {
    return v1::RANK_PHASE_READY;
  }
  if (rank.sample.phase == v1::RANK_PHASE_UNSPECIFIED) {
    return v1::RANK_PHASE_SPAWNED;
  }
  return rank.sample.phase;
}

}  // namespace

bool IsDraining(const WorkerState& state, absl::Time now) {
  return state.shutdown_at != absl::InfiniteFuture() && now < state.shutdown_at;
}

AttemptState* FindAttempt(WorkerState& state, const AttemptKey& key) {
  const auto it = state.live.find(key);
  return it == state.live.end() ? nullptr : &it->second;
}

RankState* FindRank(WorkerState& state, const RankKey& key) {
  AttemptState* const attempt = FindAttempt(state, key.attempt);
  if (attempt == nullptr) {
    return nullptr;
  }
  const auto it = attempt->ranks.find(key.rank);
  return it == attempt->ranks.end() ? nullptr : &it->second;
}

bool StopsAfterCheckpoint(const AttemptState& attempt) {
  return attempt.assignment.desired() == v1::DESIRED_STOP_AFTER_CHECKPOINT && attempt.request_sent > 0 &&
         attempt.request_sent == attempt.assignment.request();
}

v1::AttemptStatus StatusOf(const AttemptKey& key, const AttemptState& attempt, absl::Time now) {
  v1::AttemptStatus status;
  *status.mutable_id() = IdOf(key);
  status.set_store_id(attempt.store_id);
  for (const auto& [number, rank] : attempt.ranks) {
    v1::RankStatus& out = *status.add_ranks();
    out.set_rank(number);
    out.set_phase(PhaseOf(rank));
    out.set_step(rank.sample.step);
    out.set_instruction(rank.sample.instruction);
    out.set_step_seconds(rank.step_seconds);
    if (rank.ready) {
      *out.mutable_ready() = *rank.ready;
    }
    out.set_finished(rank.finished);
    out.set_exited(rank.life == Life::kGone);
    out.set_stop_requested(rank.stop_sent || rank.kill_sent || StopsAfterCheckpoint(attempt));
    if (rank.cause) {
      *out.mutable_cause() = *rank.cause;
    } else if (rank.failed) {
      *out.mutable_cause() = *rank.failed;
    }
    for (const uint64_t seq : rank.sample.collectives) {
      out.add_collective_seq(seq);
    }
    out.set_pid(rank.pid);
    for (const auto& [time, field] : {std::pair(rank.ready_at, &v1::RankStatus::mutable_ready_at),
                                      std::pair(rank.finished_at, &v1::RankStatus::mutable_finished_at),
                                      std::pair(rank.gone_at, &v1::RankStatus::mutable_exited_at)}) {
      if (time != absl::InfinitePast()) {
        *(out.*field)() = proto::ToProto(time);
      }
    }
    if (rank.life == Life::kRunning && rank.progressed_at != absl::InfinitePast()) {
      *out.mutable_since_progress() =
          proto::ToProto(std::max(absl::ZeroDuration(), now - rank.progressed_at));
      out.set_whereabouts(Whereabouts(attempt, rank.sample));
      out.set_process_stopped(rank.sample.stopped);
    }
  }
  if (attempt.refused) {
    *status.mutable_refused() = *attempt.refused;
  }
  status.set_request_done(attempt.request_done);
  status.set_request_error(attempt.request_error);
  return status;
}

v1::CheckpointNotice MessageOf(const Notice& notice) {
  v1::CheckpointNotice message = notice.message;
  *message.mutable_id() = IdOf(notice.attempt);
  message.set_number(notice.number);
  return message;
}

v1::Inventory InventoryOf(const WorkerState& state, absl::Time now) {
  v1::Inventory inventory;
  inventory.set_hostname(state.settings.hostname);
  inventory.set_data_address(state.data_address);
  inventory.set_draining(state.shutdown_at != absl::InfiniteFuture());
  inventory.set_gpus_unused(state.settings.gpus_unused);
  for (const v1::Slot& slot : state.settings.slots) {
    *inventory.add_slots() = slot;
  }
  for (const auto& [key, attempt] : state.live) {
    *inventory.add_attempts() = StatusOf(key, attempt, now);
  }
  for (const auto& [key, attempt] : state.ended) {
    *inventory.add_attempts() = attempt.status;
  }
  const size_t skipped = state.notices.size() - std::min(state.notices.size(), kMostNoticesInInventory);
  for (size_t i = skipped; i < state.notices.size(); ++i) {
    *inventory.add_notices() = MessageOf(state.notices[i]);
  }
  return inventory;
}

}  // namespace tandem::worker
