// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "controller/core/decide.h"
#include "proto/time.h"

namespace tandem::controller {
namespace {

// Converts a time of the worker's clock to a past time of ours.
void Translate(const WorkerEntry& worker, absl::Time now, google::protobuf::Timestamp& time) {
  time = proto::ToProto(std::min(now, proto::FromProto(time) - worker.clock_ahead));
}

void Translate(const WorkerEntry& worker, absl::Time now, v1::AttemptStatus& status) {
  for (v1::RankStatus& rank : *status.mutable_ranks()) {
    if (rank.has_ready_at()) {
      Translate(worker, now, *rank.mutable_ready_at());
    }
    if (rank.has_finished_at()) {
      Translate(worker, now, *rank.mutable_finished_at());
    }
    if (rank.has_exited_at()) {
      Translate(worker, now, *rank.mutable_exited_at());
    }
    if (rank.cause().has_time()) {
      Translate(worker, now, *rank.mutable_cause()->mutable_time());
    }
  }
  if (status.refused().has_time()) {
    Translate(worker, now, *status.mutable_refused()->mutable_time());
  }
}

// Bounds the attempts that one session may report: those on its slots, and ends that are not acknowledged.
// The attempts that a Hello lists are bounded by the size of a message.
bool HasRoomFor(const AttemptKey& key, const WorkerEntry& worker) {
  constexpr size_t kMostEnds = 1000;
  const size_t slots = static_cast<size_t>(worker.inventory.slots_size());
  return worker.attempts.contains(key) || worker.attempts.size() < 2 * slots + kMostEnds;
}

// Compares what decisions depend on, except causes, which come only once.
bool IsSame(const v1::RankStatus& a, const v1::RankStatus& b) {
  return a.rank() == b.rank() && a.phase() == b.phase() && a.finished() == b.finished() &&
         a.exited() == b.exited() && a.stop_requested() == b.stop_requested() &&
         a.has_ready() == b.has_ready() && a.has_cause() == b.has_cause();
}

void Take(const v1::AttemptStatus& status, absl::Time now, WorkerEntry& worker) {
  const AttemptKey key = KeyOf(status.id());
  v1::AttemptStatus& said = worker.attempts[key];
  said = status;
  Translate(worker, now, said);
  worker.heard[key] = now;
  if (std::any_of(status.ranks().begin(), status.ranks().end(), [](const v1::RankStatus& rank) {
        return rank.cause().class_() == v1::FAILURE_CLASS_PEER_LOST;
      })) {
    worker.peer_lost.try_emplace(key, now);
  }
}

// Returns the part of a status that counts: that of the ranks which were placed on the worker. Of an attempt
// without such ranks, only the fact that it may be forgotten counts.
v1::AttemptStatus OwnPart(const State& state, const std::string& worker, v1::AttemptStatus status) {
  std::set<int> own;
  if (const AttemptKey key = KeyOf(status.id()); IsLive(state, key)) {
    for (const v1::RankSlot& slot : Current(state.jobs.at(key.job).job).slots()) {
      if (slot.worker() == worker) {
        own.insert(slot.rank());
      }
    }
  }
  if (own.empty()) {
    v1::AttemptStatus out;
    *out.mutable_id() = status.id();
    out.set_ended(status.ended());
    if (status.has_refused()) {
      out.mutable_refused();
    }
    return out;
  }
  auto& ranks = *status.mutable_ranks();
  const auto others = std::remove_if(
      ranks.begin(), ranks.end(), [&own](const v1::RankStatus& rank) { return own.erase(rank.rank()) == 0; });
  ranks.erase(others, ranks.end());
  return status;
}

}  // namespace

bool IsNews(const State& state, const AttemptReport& report) {
  const v1::AttemptStatus& now = report.status;
  const v1::AttemptStatus* const before = StatusOf(state, report.worker, KeyOf(now.id()));
  return before == nullptr || before->ended() != now.ended() || before->has_refused() != now.has_refused() ||
         before->request_done() != now.request_done() ||
         !std::equal(before->ranks().begin(), before->ranks().end(), now.ranks().begin(), now.ranks().end(),
                     [](const v1::RankStatus& a, const v1::RankStatus& b) { return IsSame(a, b); });
}

void Observe(const Input& input, absl::Time now, State& state) {
  if (const auto* in = std::get_if<WorkerHello>(&input)) {
    const v1::Hello& hello = in->hello;
    WorkerEntry& worker = state.workers[hello.worker_id()];
    std::set<AttemptKey> listed;
    for (const v1::AttemptStatus& status : hello.inventory().attempts()) {
      listed.insert(KeyOf(status.id()));
    }
    const bool other_process = worker.incarnation != 0 && worker.incarnation != hello.incarnation();
    std::set<AttemptKey> missing;
    std::set<AttemptKey> killed_by_restart;
    for (const std::string& id : state.jobs.with_ranks()) {
      const JobEntry& entry = state.jobs.at(id);
      const AttemptKey key = CurrentAttempt(entry.job);
      if (!RunsOn(state, key, hello.worker_id())) {
        continue;
      }
      if (listed.count(key) > 0) {
        if (other_process) {
          killed_by_restart.insert(key);
        }
        continue;
      }
      // An attempt that was only admitted may never have reached the worker; then it is sent again.
      const bool had_it = entry.runtime.accepted() || worker.attempts.count(key) > 0;
      if (had_it || entry.job.state() == v1::JOB_STATE_STOPPING) {
        missing.insert(key);
      }
    }
    worker.missing = std::move(missing);
    worker.killed_by_restart = std::move(killed_by_restart);
    worker.unknown = in->unknown;
    worker.connected = true;
    worker.since = now;
    worker.session = in->session;
    worker.incarnation = hello.incarnation();
    worker.build = hello.build();
    worker.clock_ahead = hello.has_now() ? proto::FromProto(hello.now()) - now : absl::ZeroDuration();
    worker.attempts.clear();
    worker.heard.clear();
    worker.peer_lost.clear();
    for (const v1::AttemptStatus& status : hello.inventory().attempts()) {
      Take(OwnPart(state, hello.worker_id(), status), now, worker);
    }
    worker.inventory = hello.inventory();
    worker.inventory.clear_attempts();
    worker.inventory.clear_notices();
  } else if (const auto* in = std::get_if<WorkerDisconnected>(&input)) {
    const auto it = state.workers.find(in->worker);
    if (it != state.workers.end() && it->second.session == in->session && it->second.connected) {
      it->second.connected = false;
      it->second.since = std::min(now, in->last_seen);
    }
  } else if (const auto* in = std::get_if<WorkerDraining>(&input)) {
    const auto it = state.workers.find(in->worker);
    if (it != state.workers.end()) {
      it->second.inventory.set_draining(true);
    }
  } else if (const auto* in = std::get_if<Tick>(&input)) {
    state.awake_since = std::max(state.awake_since, in->awake_since);
  } else if (const auto* in = std::get_if<AttemptReport>(&input)) {
    const auto it = state.workers.find(in->worker);
    if (it != state.workers.end() && HasRoomFor(KeyOf(in->status.id()), it->second)) {
      Take(OwnPart(state, in->worker, in->status), now, it->second);
    }
  }
}

}  // namespace tandem::controller
