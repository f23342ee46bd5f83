#include <algorithm>
#include <utility>

#include "worker/core.h"

namespace tandem::worker {
namespace {

class Applier {
 public:
  explicit Applier(WorkerState& state) : state_(state) {}

  void operator()(const SessionOpened& event) {
    state_.session = {.open = true, .heard_at = event.at};
    state_.data_address = event.data_address;
  }
  void operator()(const SessionClosed&) { state_.session = {}; }
  void operator()(const ControllerHeard& event) {
    state_.session.heard_at = event.at;
    state_.deadline_stale = true;
  }
  void operator()(const Welcomed& event) {
    state_.session.welcomed = true;
    state_.highest_term = event.term;
    state_.store_id = event.store_id;
    state_.orphan_timeout = event.orphan_timeout;
    state_.beat = event.beat;
  }
  void operator()(const SessionUnfit& event) { state_.session.drop = event.why; }
  void operator()(const WorkerRefused& event) { state_.fatal = event.why; }
  void operator()(const Acked& event) {
    std::erase_if(state_.notices, [&](const Notice& n) { return n.seq != 0 && n.seq <= event.seq; });
  }
  void operator()(const HelloSent&) {
    state_.session.hello_sent = true;
    // The inventory said all of it; what is waited for is asked again, checkpoints are told again.
    for (auto& [key, attempt] : state_.live) {
      attempt.dirty = false;
      attempt.unsent_values.clear();
      attempt.unasked.clear();
      for (const auto& [name, ranks] : attempt.waiting) attempt.unasked.push_back(name);
    }
    for (auto& [key, attempt] : state_.ended) attempt.dirty = false;
    for (Notice& notice : state_.notices) {
      notice.seq = 0;
      notice.sent_at = absl::InfinitePast();
    }
  }
  void operator()(const MessageSent&) { ++state_.session.next_seq; }
  void operator()(const SessionDropped&) { state_.session = {}; }
  void operator()(const BeatDue&) { state_.beat_due = true; }
  void operator()(const BeatDone&) { state_.beat_due = false; }
  void operator()(const DeadlineRenewed&) { state_.deadline_stale = false; }

  void operator()(const AttemptAccepted& event) {
    AttemptState attempt{.assignment = event.assignment};
    for (const v1::RankStart& start : event.assignment.ranks()) attempt.ranks[start.rank()].start = start;
    state_.live.emplace(KeyOf(event.assignment.id()), std::move(attempt));
  }
  void operator()(const AssignmentChanged& event) {
    if (AttemptState* const attempt = Find(KeyOf(event.assignment.id())))
      attempt->assignment = event.assignment;
  }
  void operator()(const PrepareStarted& event) { Find(event.attempt)->prepare_sent = true; }
  void operator()(const AttemptPrepared& event) {
    if (AttemptState* const attempt = Find(event.attempt)) {
      attempt->prepared = true;
      attempt->program = event.program;
      attempt->dirty = true;
    }
  }
  void operator()(const AttemptRefused& event) {
    if (AttemptState* const attempt = Find(event.attempt)) {
      attempt->refused = event.cause;
      attempt->dirty = true;
      for (auto& [number, rank] : attempt->ranks) rank.life = Life::kGone;
    }
  }
  void operator()(const StopDecided& event) {
    AttemptState* const attempt = Find(event.attempt);
    if (attempt == nullptr) return;
    if (!attempt->stop) {
      attempt->stop = event.stop;
    } else if (event.stop.begin < attempt->stop->begin) {
      attempt->stop->begin = event.stop.begin;
    }
  }
  void operator()(const RequestPassedOn& event) { Find(event.attempt)->request_sent = event.request; }
  void operator()(const RequestDone& event) {
    if (AttemptState* const attempt = Find(event.attempt)) {
      if (event.request >= attempt->request_done) {
        attempt->request_done = event.request;
        attempt->request_error = event.error;
      }
      attempt->dirty = true;
    }
  }
  void operator()(const StatusDue& event) { SetDirty(event.attempt, true); }
  void operator()(const StatusSent& event) { SetDirty(event.attempt, false); }
  void operator()(const RecordingStarted& event) { Find(event.attempt)->recording = true; }
  void operator()(const AttemptEnded& event) {
    const auto it = state_.live.find(event.attempt);
    if (it == state_.live.end()) return;
    // Every rank is gone, so nothing of it has an age.
    v1::AttemptStatus status = StatusOf(it->first, it->second, /*with_values=*/false, absl::InfinitePast());
    status.set_ended(true);
    state_.ended[event.attempt] = {.status = std::move(status)};
    state_.live.erase(it);
  }
  void operator()(const AttemptForgotten& event) {
    state_.ended.erase(event.attempt);
    state_.forgotten.push_back(event.attempt);
  }
  void operator()(const RecordsRemoved&) { state_.forgotten.clear(); }

  void operator()(const SpawnStarted& event) { Touch(event.rank)->life = Life::kStarting; }
  void operator()(const RankStarted& event) {
    if (RankState* const rank = Touch(event.rank)) {
      rank->life = Life::kRunning;
      rank->pid = event.pid;
    }
  }
  void operator()(const RankReady& event) {
    if (RankState* const rank = Touch(event.rank)) {
      rank->ready = event.ready;
      rank->ready_at = event.time;
    }
  }
  void operator()(const RankFailed& event) {
    if (RankState* const rank = Touch(event.rank)) rank->failed = event.cause;
  }
  void operator()(const RankFinished& event) {
    if (RankState* const rank = Touch(event.rank)) {
      rank->finished = true;
      rank->finished_at = event.time;
    }
  }
  void operator()(const RankSampled& event) {
    RankState* const rank = Find(event.rank);
    if (rank == nullptr) return;
    const int64_t steps = event.sample.step - rank->sample.step;
    if (steps > 0) {
      if (rank->sample.step > 0)
        rank->step_seconds = absl::ToDoubleSeconds(event.time - rank->sampled_at) / steps;
      rank->sampled_at = event.time;
    }
    // The page has the times of instructions alone: a new phase is as old as this look.
    const PageSample& last = rank->sample;
    const bool moved = rank->progressed_at == absl::InfinitePast() || event.sample.phase != last.phase ||
                       event.sample.step != last.step || event.sample.collectives != last.collectives;
    const absl::Time told = event.time - event.sample.since_progress;
    if (told > rank->progressed_at) {
      rank->progressed_at = told;
    } else if (moved) {
      rank->progressed_at = event.time;
    }
    rank->sample = event.sample;
  }
  void operator()(const StopSent& event) {
    if (RankState* const rank = Touch(event.rank)) {
      rank->stop_sent = true;
      rank->kill_at = event.kill_at;
    }
  }
  void operator()(const KillSent& event) {
    if (RankState* const rank = Touch(event.rank)) rank->kill_sent = true;
  }
  void operator()(const RankGone& event) {
    if (RankState* const rank = Touch(event.rank)) {
      rank->life = Life::kGone;
      rank->gone_at = event.time;
      rank->cause = event.cause;
      for (auto& [name, ranks] : Find(event.rank.attempt)->waiting) ranks.erase(event.rank.rank);
    }
  }

  void operator()(const ValueKnown& event) {
    AttemptState* const attempt = Find(event.attempt);
    if (attempt == nullptr || !attempt->values.emplace(event.key, event.value).second) return;
    if (event.value.rank >= 0) attempt->unsent_values.push_back(event.key);
    const auto waiting = attempt->waiting.find(event.key);
    if (waiting == attempt->waiting.end()) return;
    for (const int rank : waiting->second) attempt->answers.emplace_back(rank, event.key);
    std::erase(attempt->unasked, event.key);
    attempt->waiting.erase(waiting);
  }
  void operator()(const ValueWanted& event) {
    AttemptState* const attempt = Find(event.rank.attempt);
    if (attempt == nullptr) return;
    if (attempt->values.contains(event.key)) {
      attempt->answers.emplace_back(event.rank.rank, event.key);
      return;
    }
    const auto [waiting, fresh] = attempt->waiting.try_emplace(event.key);
    waiting->second.insert(event.rank.rank);
    if (fresh) attempt->unasked.push_back(event.key);
  }
  void operator()(const ValuesSent& event) { Find(event.attempt)->unsent_values.clear(); }
  void operator()(const GetsAsked& event) { Find(event.attempt)->unasked.clear(); }
  void operator()(const AnswersSent& event) { Find(event.attempt)->answers.clear(); }

  void operator()(const CheckpointSeen& event) {
    if (state_.notices.size() >= kMaxNotices) state_.notices.erase(state_.notices.begin());
    state_.notices.push_back(
        {.attempt = event.attempt, .message = event.message, .number = ++state_.last_notice});
  }
  void operator()(const NoticeSent& event) {
    for (Notice& notice : state_.notices) {
      if (notice.number == event.number) {
        notice.seq = event.seq;
        notice.sent_at = event.time;
      }
    }
  }
  void operator()(const UploadAsked& event) { state_.uploads.push_back(event.request); }
  void operator()(const UploadsStarted&) { state_.uploads.clear(); }
  void operator()(const ShutdownBegun& event) {
    state_.shutdown_at = std::min(state_.shutdown_at, event.time);
  }
  void operator()(const ExitSent&) { state_.exit_sent = true; }

 private:
  AttemptState* Find(const AttemptKey& key) {
    const auto it = state_.live.find(key);
    return it == state_.live.end() ? nullptr : &it->second;
  }
  RankState* Find(const RankKey& key) {
    AttemptState* const attempt = Find(key.attempt);
    if (attempt == nullptr) return nullptr;
    const auto it = attempt->ranks.find(key.rank);
    return it == attempt->ranks.end() ? nullptr : &it->second;
  }
  // The rank, whose change the controller should hear of at once.
  RankState* Touch(const RankKey& key) {
    SetDirty(key.attempt, true);
    return Find(key);
  }
  void SetDirty(const AttemptKey& key, bool dirty) {
    if (AttemptState* const attempt = Find(key)) attempt->dirty = dirty;
    if (const auto it = state_.ended.find(key); it != state_.ended.end()) it->second.dirty = dirty;
  }

  WorkerState& state_;
};

}  // namespace

void Apply(const Event& event, WorkerState& state) { std::visit(Applier(state), event); }

}  // namespace tandem::worker
