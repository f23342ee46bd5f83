// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/log.h"
#include "proto/protocol.h"
#include "proto/reasons.h"
#include "proto/time.h"
#include "worker/cause.h"
#include "worker/step.h"

namespace tandem::worker {
namespace {

absl::Duration GraceOf(const v1::Assignment& assignment) {
  return assignment.has_grace() ? proto::FromProto(assignment.grace()) : kDefaultGrace;
}

constexpr char kAskedToEnd[] = "a worker of the job was asked to end before the job began";

// Ids become folder names.
bool IsSafeName(const std::string& id) {
  return !id.empty() && id.size() <= 64 && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

// Returns why this worker cannot run an assignment, which is known before any file is inspected; empty if it
// can.
std::string Unfit(const WorkerState& state, const v1::Assignment& assignment) {
  if (assignment.ranks().empty()) {
    return "the assignment has no rank for this worker";
  }
  std::set<int> ranks;
  std::set<int> slots;
  for (const v1::RankStart& start : assignment.ranks()) {
    const auto slot = std::find_if(state.settings.slots.begin(), state.settings.slots.end(),
                                   [&](const v1::Slot& p) { return p.index() == start.slot(); });
    if (slot == state.settings.slots.end()) {
      return absl::StrCat("rank ", start.rank(), " is assigned to slot ", start.slot(),
                          ", but this worker has ", state.settings.slots.size());
    }
    if (assignment.resolved().resources().device() == v1::DEVICE_CUDA && slot->device() != v1::DEVICE_CUDA) {
      return absl::StrCat("rank ", start.rank(), " needs a GPU, but slot ", start.slot(), " is a CPU slot");
    }
    if (!ranks.insert(start.rank()).second) {
      return absl::StrCat("rank ", start.rank(), " is assigned twice");
    }
    if (!slots.insert(start.slot()).second) {
      return absl::StrCat("slot ", start.slot(), " is assigned twice");
    }
    for (const auto& [key, attempt] : state.live) {
      for (const auto& [number, rank] : attempt.ranks) {
        if (rank.life != Life::kGone && rank.start.slot() == start.slot()) {
          return absl::StrCat("slot ", start.slot(), " is still in use by rank ", number, " of job ",
                              key.job);
        }
      }
    }
  }
  return "";
}

// Applies inputs to the state.
class Taker {
 public:
  Taker(WorkerState& state, absl::Time now, Commands& commands)
      : state_(state), now_(now), commands_(commands) {}

  void operator()(const Connected& input) {
    state_.session = {.open = true, .heard_at = now_};
    state_.data_address = input.data_address;
  }
  void operator()(const Disconnected&) { state_.session = {}; }

  void operator()(const FromController& input) {
    const v1::ControllerMessage& message = input.message;
    const bool greeting = message.item_case() == v1::ControllerMessage::kWelcome ||
                          message.item_case() == v1::ControllerMessage::kRefused;
    // Messages of a controller that was turned down may still arrive.
    if (!state_.session.open || (!state_.session.welcomed && !greeting)) {
      return;
    }
    if (message.item_case() == v1::ControllerMessage::kWelcome) {
      if (std::string why = WhyNot(message.welcome()); !why.empty()) {
        state_.session.drop = std::move(why);
        return;
      }
    }
    state_.session.heard_at = now_;
    state_.deadline_stale = true;
    if (const uint64_t ack = message.ack(); ack > 0) {
      std::erase_if(state_.notices, [&](const Notice& n) { return n.seq != 0 && n.seq <= ack; });
    }
    switch (message.item_case()) {
      case v1::ControllerMessage::kWelcome:
        Welcome(message.welcome());
        break;
      case v1::ControllerMessage::kAssignments:
        TakeAssignments(message.assignments());
        break;
      case v1::ControllerMessage::kValue:
        if (AttemptState* const attempt = FindAttempt(state_, KeyOf(message.value().id()))) {
          attempt->rendezvous.Learn(message.value().key(), {.bytes = message.value().value()});
        }
        break;
      case v1::ControllerMessage::kUpload:
        state_.uploads.push_back(message.upload());
        break;
      case v1::ControllerMessage::kRefused: {
        const std::string why =
            absl::StrCat("the controller refuses this worker: ", message.refused().reason(), ": ",
                         message.refused().message());
        if (message.refused().final()) {
          state_.fatal = why;
        } else {
          state_.session.drop = why;
        }
        break;
      }
      case v1::ControllerMessage::kHeartbeat:
      case v1::ControllerMessage::ITEM_NOT_SET:
        break;
    }
  }

  void operator()(const LookingAt& input) {
    if (AttemptState* const attempt = Preparing(input.attempt)) {
      attempt->looking_at = input.what;
      attempt->check_by = input.what.empty() ? absl::InfiniteFuture() : now_ + kPathLimit;
    }
  }

  void operator()(const Checked& input) {
    AttemptState* const attempt = Preparing(input.attempt);
    if (attempt == nullptr) {
      return;
    }
    if (!input.violations.empty()) {
      Refuse(input.attempt, *attempt, v1::FAILURE_CLASS_USER, proto::ReasonCode("InvalidSpec"),
             input.violations);
    } else if (!input.problem.empty()) {
      Refuse(input.attempt, *attempt, v1::FAILURE_CLASS_INFRASTRUCTURE, input.reason, input.problem);
    } else {
      attempt->preparation = Preparation::kChecked;
      attempt->program = input.program;
    }
  }

  void operator()(const RanksRecorded& input) {
    AttemptState* const attempt = Preparing(input.attempt);
    if (attempt == nullptr) {
      return;
    }
    if (!input.problem.empty()) {
      Refuse(input.attempt, *attempt, v1::FAILURE_CLASS_INFRASTRUCTURE, input.reason,
             absl::StrCat("worker ", state_.settings.worker_id,
                          " cannot keep a record of its ranks in its --state: ", input.problem,
                          ", then submit the job again"));
    } else {
      attempt->preparation = Preparation::kReady;
      attempt->dirty = true;
    }
  }

  void operator()(const RankSpawned& input) {
    RankState* const rank = Touch(input.rank);
    if (rank == nullptr) {
      return;
    }
    rank->life = Life::kRunning;
    rank->pid = input.process.pid;
    commands_.push_back(
        LogLine{.attempt = input.rank.attempt,
                .text = absl::StrCat("rank ", input.rank.rank, " runs as process ", input.process.pid)});
  }

  void operator()(const SpawnFailed& input) {
    if (RankState* const rank = Touch(input.rank)) {
      EndRank(input.rank, state_.live.at(input.rank.attempt), *rank,
              CauseOfNoStart(state_.settings.worker_id, *rank, input.why, now_), now_, commands_);
    }
  }

  void operator()(const RankExited& input) {
    RankState* const rank = Touch(input.rank);
    if (rank == nullptr) {
      return;
    }
    AttemptState& attempt = state_.live.at(input.rank.attempt);
    Look(*rank, input.sample);
    EndRank(input.rank, attempt, *rank,
            CauseOfExit(state_.settings.worker_id, attempt, *rank, input.exit, now_), now_, commands_);
  }

  void operator()(const FromRank& input) {
    RankState* const rank = FindRank(state_, input.rank);
    if (rank == nullptr || rank->life == Life::kGone) {
      return;
    }
    const AttemptKey& key = input.rank.attempt;
    AttemptState& attempt = state_.live.at(key);
    const v1::FromTrainer& message = input.message;
    switch (message.item_case()) {
      case v1::FromTrainer::kSet:
        attempt.rendezvous.Learn(message.set().key(),
                                 {.bytes = message.set().value(), .rank = input.rank.rank});
        break;
      case v1::FromTrainer::kGet:
        attempt.rendezvous.Want(input.rank.rank, message.get().key());
        break;
      case v1::FromTrainer::kReady:
        rank->ready = message.ready();
        rank->ready_at = now_;
        attempt.dirty = true;
        if (const v1::JobSpec& job = attempt.assignment.resolved();
            input.rank.rank == 0 && job.checkpoint().has_directory()) {
          const int64_t done = message.ready().resumed_step();
          commands_.push_back(RecordMetrics{key,
                                            {.directory = job.checkpoint().directory(),
                                             .first_step = done == 0 ? 0 : done + 1,
                                             .last_step = job.training().steps()}});
        }
        break;
      case v1::FromTrainer::kCheckpoint:
      case v1::FromTrainer::kCheckpointWarning:
      case v1::FromTrainer::kTrainingWarning: {
        v1::CheckpointNotice notice;
        *notice.mutable_at() = proto::ToProto(now_);
        if (message.has_checkpoint()) {
          *notice.mutable_committed() = message.checkpoint();
        } else if (message.has_training_warning()) {
          *notice.mutable_training() = message.training_warning();
        } else {
          *notice.mutable_warning() = message.checkpoint_warning();
        }
        if (state_.notices.size() >= kMaxNotices) {
          state_.notices.erase(state_.notices.begin());
        }
        state_.notices.push_back({.attempt = key,
                                  .store_id = attempt.store_id,
                                  .message = std::move(notice),
                                  .number = ++state_.last_notice});
        break;
      }
      case v1::FromTrainer::kFailed:
        if (!rank->failed) {
          RankState then = *rank;
          if (input.sample) {
            then.sample = *input.sample;
          }
          rank->failed = CompleteFailed(message.failed(), state_.settings.worker_id, then, now_);
          attempt.dirty = true;
          commands_.push_back(LogLine{.level = platform::LogLevel::kWarning,
                                      .attempt = key,
                                      .text = "a rank failed",
                                      .cause = rank->failed});
        }
        break;
      case v1::FromTrainer::kFinished:
        rank->finished = true;
        rank->finished_at = now_;
        attempt.dirty = true;
        break;
      case v1::FromTrainer::kRequestDone:
        if (message.request_done() >= attempt.request_done) {
          attempt.request_done = message.request_done();
          attempt.request_error = message.request_error();
        }
        attempt.dirty = true;
        break;
      case v1::FromTrainer::kTable:     // goes to the report queue
      case v1::FromTrainer::kReport:    // goes to the report queue
      case v1::FromTrainer::kProfiled:  // goes to the profiles
      case v1::FromTrainer::ITEM_NOT_SET:
        break;
    }
  }

  void operator()(const Sampled& input) {
    for (const auto& [key, sample] : input.samples) {
      if (RankState* const rank = FindRank(state_, key)) {
        Look(*rank, sample);
      }
    }
    if (state_.session.open && now_ - state_.session.heard_at > kLongestSilence) {
      state_.session.drop = absl::StrCat("the controller, which sends heartbeats, has not been heard for ",
                                         absl::FormatDuration(kLongestSilence));
    }
    state_.heartbeat_due = true;
  }

  void operator()(const EndRecorded& input) {
    const auto it = state_.live.find(input.attempt);
    if (it == state_.live.end()) {
      return;
    }
    // No rank is left, so no age counts.
    v1::AttemptStatus status = StatusOf(it->first, it->second, absl::InfinitePast());
    status.set_ended(true);
    state_.ended[input.attempt] = {.status = std::move(status)};
    state_.live.erase(it);
    commands_.push_back(LogLine{.attempt = input.attempt, .text = "ended here"});
  }

  void operator()(const ShutdownAsked& input) {
    state_.shutdown_at = std::min(state_.shutdown_at, now_ + input.drain);
  }
  void operator()(const Woken&) {}

 private:
  // Returns why this controller must not be obeyed; empty if it may.
  std::string WhyNot(const v1::Welcome& welcome) const {
    if (welcome.store_id() == state_.store_id && welcome.term() < state_.highest_term) {
      return absl::StrCat("the controller's term ", welcome.term(), " is older than term ",
                          state_.highest_term, ", which this worker has seen");
    }
    if (!state_.live.empty() && welcome.store_id() != state_.store_id) {
      return absl::StrCat(
          "this controller has store ", welcome.store_id(), ", and the ranks that run here are of store ",
          state_.store_id,
          ": it would stop them; the worker waits for the other controller, or until they have ended");
    }
    if (welcome.protocol() != proto::kProtocol) {
      return absl::StrCat("the controller speaks protocol ", welcome.protocol(), ", this worker only ",
                          proto::kProtocol);
    }
    return "";
  }

  void Welcome(const v1::Welcome& welcome) {
    state_.session.welcomed = true;
    state_.highest_term = welcome.term();
    state_.store_id = welcome.store_id();
    state_.orphan_timeout =
        welcome.has_orphan_timeout() ? proto::FromProto(welcome.orphan_timeout()) : absl::InfiniteDuration();
    state_.heartbeat_interval =
        welcome.has_heartbeat_interval() ? proto::FromProto(welcome.heartbeat_interval()) : absl::Seconds(1);
    commands_.push_back(LogLine{.text = "connected to the controller"});
    if (welcome.has_assignments()) {
      TakeAssignments(welcome.assignments());
    }
  }

  void TakeAssignments(const v1::Assignments& assignments) {
    std::set<AttemptKey> listed;
    // Stops come first: a slot that they free can be assigned in the same message only after its rank is
    // gone, so an assignment never overtakes a stop.
    for (const v1::Assignment& assignment : assignments.all()) {
      listed.insert(KeyOf(assignment.id()));
    }
    for (auto& [key, attempt] : state_.live) {
      const bool is_unknown = std::any_of(assignments.unknown().begin(), assignments.unknown().end(),
                                          [&key = key](const v1::AttemptId& id) { return KeyOf(id) == key; });
      if (is_unknown && !std::exchange(attempt.unknown, true)) {
        commands_.push_back(LogLine{.level = platform::LogLevel::kError,
                                    .attempt = key,
                                    .text = "the controller does not know this job, and may have lost it: "
                                            "its ranks go on; stop this worker to end them"});
      }
      if (!listed.contains(key) && !is_unknown && !attempt.stop) {
        StopAttempt(
            key, attempt,
            {.reason = proto::ReasonCode("Withdrawn"), .begin = now_, .grace = GraceOf(attempt.assignment)},
            commands_);
      }
    }
    for (const v1::Assignment& assignment : assignments.all()) {
      TakeAssignment(assignment);
    }
    for (const v1::AttemptId& id : assignments.forget()) {
      // A controller also sends `forget` for jobs that it does not know, but another controller may still
      // need this end.
      const auto ended = state_.ended.find(KeyOf(id));
      if (ended == state_.ended.end()) {
        continue;
      }
      const std::string& store = ended->second.status.store_id();  // empty if an older build recorded it
      if (!store.empty() && store != state_.store_id) {
        continue;
      }
      state_.ended.erase(ended);
      state_.forgotten.push_back(KeyOf(id));
    }
  }

  void TakeAssignment(const v1::Assignment& assignment) {
    const AttemptKey key = KeyOf(assignment.id());
    if (const auto ended = state_.ended.find(key); ended != state_.ended.end()) {
      ended->second.dirty = true;
      return;
    }
    const bool stop = assignment.desired() == v1::DESIRED_STOP_NOW;
    AttemptState* attempt = FindAttempt(state_, key);
    if (attempt != nullptr) {
      attempt->assignment = assignment;
      if (assignment.connected()) {
        attempt->rendezvous = {};
      }
    } else {
      if (!IsSafeName(key.job) || key.attempt < 1) {
        return;  // no controller of ours sends such a job
      }
      const bool draining = IsDraining(state_, now_);
      if (state_.shutdown_at != absl::InfiniteFuture() && !draining) {
        return;
      }
      const std::string unfit = stop ? "" : Unfit(state_, assignment);
      attempt = &state_.live[key];
      attempt->assignment = assignment;
      attempt->store_id = state_.store_id;
      for (const v1::RankStart& start : assignment.ranks()) {
        attempt->ranks[start.rank()].start = start;
      }
      commands_.push_back(
          LogLine{.attempt = key, .text = absl::StrCat("assigned ", assignment.ranks_size(), " rank(s)")});
      if (draining) {  // assigned before the controller knew of the drain
        Refuse(key, *attempt, v1::FAILURE_CLASS_PREEMPTED, proto::ReasonCode("Preempted"), kAskedToEnd);
      } else if (!unfit.empty()) {
        Refuse(key, *attempt, v1::FAILURE_CLASS_INFRASTRUCTURE, proto::ReasonCode("BadAssignment"), unfit);
      }
    }
    if (stop) {
      const std::string reason =
          assignment.reason().empty() ? proto::ReasonCode("Stopped") : assignment.reason();
      StopAttempt(key, *attempt, {.reason = reason, .begin = now_, .grace = GraceOf(assignment)}, commands_);
    }
  }

  void Refuse(const AttemptKey& key, AttemptState& attempt, v1::FailureClass failure,
              const std::string& reason, const std::string& message) {
    RefuseAttempt(key, attempt, CauseOfRefusal(state_.settings.worker_id, failure, reason, message, now_),
                  commands_);
  }

  // Returns the attempt if an answer about its preparation still matters: while a path hung, the attempt may
  // have been stopped or refused, or have ended.
  AttemptState* Preparing(const AttemptKey& key) {
    AttemptState* const attempt = FindAttempt(state_, key);
    return attempt == nullptr || attempt->stop || attempt->refused ? nullptr : attempt;
  }

  // Takes a sample of the rank's page.
  void Look(RankState& rank, const PageSample& sample) {
    const int64_t steps = sample.step - rank.sample.step;
    if (steps > 0) {
      if (rank.sample.step > 0) {
        rank.step_seconds = absl::ToDoubleSeconds(now_ - rank.sampled_at) / steps;
      }
      rank.sampled_at = now_;
    }
    // The page has times of instructions only, so a new phase begins with this sample.
    const PageSample& last = rank.sample;
    const bool moved = rank.progressed_at == absl::InfinitePast() || sample.phase != last.phase ||
                       sample.step != last.step || sample.collectives != last.collectives;
    const absl::Time progressed = now_ - sample.since_progress;
    if (progressed > rank.progressed_at) {
      rank.progressed_at = progressed;
    } else if (moved) {
      rank.progressed_at = now_;
    }
    rank.sample = sample;
  }

  // Returns the rank, and marks it so that the controller gets its change at once; null if it is not live.
  RankState* Touch(const RankKey& key) {
    RankState* const rank = FindRank(state_, key);
    if (rank != nullptr) {
      state_.live.at(key.attempt).dirty = true;
    }
    return rank;
  }

  WorkerState& state_;
  const absl::Time now_;
  Commands& commands_;
};

}  // namespace

void Take(const Input& input, WorkerState& state, absl::Time now, Commands& commands) {
  std::visit(Taker(state, now, commands), input);
}

}  // namespace tandem::worker
