// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/protocol.h"
#include "proto/reasons.h"
#include "proto/time.h"
#include "worker/cause.h"
#include "worker/step.h"

namespace tandem::worker {
namespace {

// One round. Each command also changes the state, so that the next round does not repeat it.
class Reconciler {
 public:
  Reconciler(WorkerState& state, absl::Time now, Commands& commands)
      : state_(state), now_(now), commands_(commands) {}

  bool Run() {
    if (state_.fatal || now_ >= state_.shutdown_at) {
      Shutdown();
    } else if (IsDraining(state_, now_)) {
      Drain();
    }
    for (auto& [key, attempt] : state_.live) {
      Reconcile(key, attempt);
    }
    if (!state_.session.drop.empty()) {
      Do(DropSession{state_.session.drop});
      state_.session = {};
    } else if (state_.session.open && !changed_) {
      Talk();  // what changes in this round is sent in the next
    }
    if (state_.deadline_stale) {
      Do(RenewDeadline{state_.orphan_timeout * 0.8});
      state_.deadline_stale = false;
    }
    for (const AttemptKey& key : state_.forgotten) {
      Do(Forget{key});
    }
    state_.forgotten.clear();
    for (const v1::UploadRequest& request : state_.uploads) {
      Do(StartUpload{request});
    }
    state_.uploads.clear();
    return changed_;
  }

 private:
  void Do(Command command) {
    commands_.push_back(std::move(command));
    changed_ = true;
  }

  void Send(v1::WorkerMessage message) {
    message.set_seq(state_.session.next_seq++);
    Do(SendToController{std::move(message)});
  }

  // Stops an attempt, or moves its stop to an earlier time.
  void Stop(const AttemptKey& key, AttemptState& attempt, worker::Stop stop) {
    StopAttempt(key, attempt, std::move(stop), commands_);
    changed_ = true;
  }

  // Asks every attempt to save a checkpoint and to end, with its ranks on other workers. The process ends
  // when no attempt is left.
  void Drain() {
    if (state_.live.empty()) {
      state_.shutdown_at = now_;
      changed_ = true;
    }
    for (auto& [key, attempt] : state_.live) {
      if (!attempt.drained && !attempt.stop) {
        attempt.drained = AskOneRank(key, attempt, v1::DESIRED_STOP_AFTER_CHECKPOINT, /*request=*/0);
      }
    }
  }

  // Ends everything. The process exits once every end is recorded and sent, or at the limit.
  void Shutdown() {
    if (state_.exit_sent) {
      return;
    }
    if (now_ < state_.shutdown_at) {
      state_.shutdown_at = now_;
      changed_ = true;
    }
    const bool ends_sent =
        !state_.session.hello_sent || std::none_of(state_.ended.begin(), state_.ended.end(),
                                                   [](const auto& ended) { return ended.second.dirty; });
    // If the worker left without a message, the controller would wait for it to return.
    const bool all_sent = ends_sent && (!state_.session.welcomed || state_.session.drain_sent);
    if ((state_.live.empty() && all_sent) || now_ >= state_.shutdown_at + kShutdownLimit) {
      Do(ExitProcess{state_.fatal.value_or("")});
      state_.exit_sent = true;
      return;
    }
    for (auto& [key, attempt] : state_.live) {
      if (!attempt.stop) {
        Stop(key, attempt,
             {.reason = proto::ReasonCode("WorkerStopped"), .begin = now_, .grace = kDefaultGrace});
      }
    }
  }

  void Reconcile(const AttemptKey& key, AttemptState& attempt) {
    StopTheOthers(key, attempt);
    const bool is_wanted = !attempt.refused && !attempt.stop;
    if (is_wanted && attempt.preparation != Preparation::kReady) {
      return GetReady(key, attempt);
    }
    bool all_gone = true;
    for (auto& [number, rank] : attempt.ranks) {
      Reconcile({key, number}, attempt, rank);
      all_gone = all_gone && rank.life == Life::kGone;
    }
    // Does not wait for a check, which writes nothing and may never end. The shell records in order, so the
    // record of ranks is not written into a folder that this command has closed.
    if (all_gone && !attempt.recording) {
      v1::AttemptStatus status = StatusOf(key, attempt, now_);
      status.set_ended(true);
      Do(RecordEnd{std::move(status)});
      attempt.recording = true;
    }
    PassRequestOn(key, attempt);
    Answer(key, attempt);
  }

  void GetReady(const AttemptKey& key, AttemptState& attempt) {
    switch (attempt.preparation) {
      case Preparation::kNew:
        attempt.preparation = Preparation::kChecking;
        attempt.check_by = now_ + kPathLimit;
        Do(Check{attempt.assignment});
        break;
      case Preparation::kChecking:
        if (now_ >= attempt.check_by) {
          RefuseAttempt(key, attempt,
                        CauseOfRefusal(state_.settings.worker_id, v1::FAILURE_CLASS_INFRASTRUCTURE,
                                       proto::ReasonCode("PathHangs"), WhyNoAnswer(attempt), now_),
                        commands_);
          changed_ = true;
        }
        break;
      case Preparation::kChecked: {
        RecordRanks record{.attempt = key, .store_id = attempt.store_id};
        for (const auto& [number, rank] : attempt.ranks) {
          record.ranks.push_back(number);
        }
        attempt.preparation = Preparation::kRecording;
        Do(std::move(record));
        break;
      }
      case Preparation::kRecording:
      case Preparation::kReady:
        break;
    }
  }

  std::string WhyNoAnswer(const AttemptState& attempt) const {
    const std::string limit = absl::FormatDuration(kPathLimit);
    return attempt.looking_at.empty()
               ? absl::StrCat("no look at the job's paths could begin within ", limit,
                              ": those at other jobs' paths hang on worker ", state_.settings.worker_id,
                              ", whose log names them; repair that file system there, then submit again")
               : absl::StrCat(attempt.looking_at, " does not answer on worker ", state_.settings.worker_id,
                              " (waited ", limit,
                              "): mend or unmount that file system there, or use another path");
  }

  // The attempt cannot make a step without all its ranks, so none has to be asked.
  void StopTheOthers(const AttemptKey& key, AttemptState& attempt) {
    std::optional<absl::Time> begin;
    for (const auto& [number, rank] : attempt.ranks) {
      const v1::Cause* const cause = rank.cause ? &*rank.cause : rank.failed ? &*rank.failed : nullptr;
      if (cause == nullptr) {
        continue;
      }
      const bool consequence = cause->class_() == v1::FAILURE_CLASS_PEER_LOST;
      const absl::Time when = consequence ? now_ + kPeerLostPause : now_;
      begin = begin ? std::min(*begin, when) : when;
    }
    if (!begin || (attempt.stop && attempt.stop->begin <= *begin)) {
      return;
    }
    Stop(key, attempt, {.reason = proto::ReasonCode("RankLost"), .begin = *begin, .grace = kDefaultGrace});
  }

  void Reconcile(const RankKey& key, AttemptState& attempt, RankState& rank) {
    const bool stopping = attempt.stop && now_ >= attempt.stop->begin;
    switch (rank.life) {
      case Life::kWaiting:
        if (attempt.stop) {
          EndRank(key, attempt, rank,
                  CauseNeverStarted(state_.settings.worker_id, rank, attempt.stop->reason, now_), now_,
                  commands_);
          changed_ = true;
        } else {
          Do(Spawn{key, StartOf(attempt, rank)});
          rank.life = Life::kStarting;
        }
        break;
      case Life::kRunning:
        if (stopping && !rank.stop_sent) {
          v1::ToTrainer message;
          message.set_request(v1::DESIRED_STOP_NOW);
          Do(SendToRank{key, std::move(message)});
          rank.stop_sent = true;
          rank.kill_at = now_ + attempt.stop->grace;
        } else if (rank.stop_sent && !rank.kill_sent && now_ >= rank.kill_at) {
          Do(Kill{key});
          rank.kill_sent = true;
        } else {
          return;
        }
        break;
      case Life::kStarting:
      case Life::kGone:
        return;
    }
    attempt.dirty = true;
  }

  v1::Start StartOf(const AttemptState& attempt, const RankState& rank) const {
    v1::Start start;
    *start.mutable_assignment() = attempt.assignment;
    start.set_rank(rank.start.rank());
    start.set_data_address(state_.data_address);
    start.set_build(state_.settings.build);
    return start;
  }

  void PassRequestOn(const AttemptKey& key, AttemptState& attempt) {
    const v1::Assignment& assignment = attempt.assignment;
    const bool one_shot = assignment.desired() == v1::DESIRED_STOP_AFTER_CHECKPOINT ||
                          assignment.desired() == v1::DESIRED_CHECKPOINT_AND_GO_ON;
    if (!one_shot || assignment.request() <= attempt.request_sent || attempt.stop) {
      return;
    }
    if (AskOneRank(key, attempt, assignment.desired(), assignment.request())) {
      attempt.request_sent = assignment.request();
    }
  }

  // Asks one rank; the ranks agree by collective when to act on a request. Returns false if none runs.
  bool AskOneRank(const AttemptKey& key, const AttemptState& attempt, v1::Desired desired, uint64_t request) {
    for (const auto& [number, rank] : attempt.ranks) {
      if (rank.life != Life::kRunning) {
        continue;
      }
      v1::ToTrainer message;
      message.set_request(desired);
      message.set_request_id(request);
      Do(SendToRank{{key, number}, std::move(message)});
      return true;
    }
    return false;
  }

  void Answer(const AttemptKey& key, AttemptState& attempt) {
    for (const auto& [number, name] : attempt.rendezvous.answers) {
      v1::ToTrainer message;
      *message.mutable_value()->mutable_id() = IdOf(key);
      message.mutable_value()->set_key(name);
      message.mutable_value()->set_value(attempt.rendezvous.values.at(name).bytes);
      Do(SendToRank{{key, number}, std::move(message)});
    }
    attempt.rendezvous.answers.clear();
  }

  void Talk() {
    if (!state_.session.hello_sent) {
      v1::WorkerMessage message;
      v1::Hello& hello = *message.mutable_hello();
      hello.set_worker_id(state_.settings.worker_id);
      hello.set_incarnation(state_.settings.incarnation);
      hello.set_build(state_.settings.build);
      hello.set_protocol_min(proto::kProtocol);
      hello.set_protocol_max(proto::kProtocol);
      hello.set_highest_term(state_.highest_term);
      hello.set_store_id(state_.store_id);
      *hello.mutable_now() = proto::ToProto(now_);
      *hello.mutable_inventory() = InventoryOf(state_, now_);
      Send(std::move(message));
      AfterHello();
      return;
    }
    // Before the welcome only the inventory is sent, because notices of checkpoints wait for it: an end that
    // overtook such a notice would end the job without it.
    if (!state_.session.welcomed) {
      return;
    }
    SendNotices();
    if (state_.shutdown_at != absl::InfiniteFuture() && !state_.session.drain_sent) {
      v1::WorkerMessage message;
      message.mutable_heartbeat()->set_draining(true);
      Send(std::move(message));
      state_.session.drain_sent = true;
    }
    for (auto& [key, attempt] : state_.live) {
      SendValues(key, attempt);
    }
    bool is_heard = false;
    for (auto& [key, attempt] : state_.live) {
      // An attempt whose files are being checked is neither accepted nor refused.
      const bool known = attempt.preparation == Preparation::kReady || attempt.refused || attempt.stop;
      if (!known || (!attempt.dirty && !state_.heartbeat_due)) {
        continue;
      }
      SendStatus(StatusOf(key, attempt, now_));
      attempt.dirty = false;
      is_heard = true;
    }
    for (auto& [key, ended] : state_.ended) {
      if (ended.dirty) {
        SendStatus(ended.status);
      }
      ended.dirty = false;
    }
    if (state_.heartbeat_due && !is_heard) {
      v1::WorkerMessage message;
      message.mutable_heartbeat();
      Send(std::move(message));
    }
    state_.heartbeat_due = false;
  }

  void SendNotices() {
    for (Notice& notice : state_.notices) {
      if (notice.store_id != state_.store_id || notice.seq != 0) {
        continue;
      }
      v1::WorkerMessage message;
      *message.mutable_checkpoint() = MessageOf(notice);
      notice.seq = state_.session.next_seq;
      Send(std::move(message));
    }
  }

  // The inventory has everything except the rendezvous: keys that ranks have set or wait for, and notices of
  // checkpoints, are sent again after the welcome.
  void AfterHello() {
    state_.session.hello_sent = true;
    state_.session.drain_sent = state_.shutdown_at != absl::InfiniteFuture();
    for (auto& [key, attempt] : state_.live) {
      attempt.dirty = false;
      attempt.rendezvous.SendAgain();
    }
    for (auto& [key, ended] : state_.ended) {
      ended.dirty = false;
    }
    for (Notice& notice : state_.notices) {
      notice.seq = 0;
    }
  }

  void SendStatus(const v1::AttemptStatus& status) {
    v1::WorkerMessage message;
    *message.mutable_status() = status;
    Send(std::move(message));
  }

  void SendValues(const AttemptKey& key, AttemptState& attempt) {
    for (const std::string& name : attempt.rendezvous.unsent) {
      v1::WorkerMessage message;
      v1::KvSet& set = *message.mutable_set();
      *set.mutable_id() = IdOf(key);
      set.set_key(name);
      set.set_value(attempt.rendezvous.values.at(name).bytes);
      set.set_rank(attempt.rendezvous.values.at(name).rank);
      Send(std::move(message));
    }
    attempt.rendezvous.unsent.clear();
    for (const std::string& name : attempt.rendezvous.unasked) {
      const std::set<int>& ranks = attempt.rendezvous.waiting.at(name);
      if (ranks.empty()) {
        continue;  // the ranks that waited for it are gone
      }
      v1::WorkerMessage message;
      v1::KvGet& get = *message.mutable_get();
      *get.mutable_id() = IdOf(key);
      get.set_key(name);
      get.set_rank(*ranks.begin());
      Send(std::move(message));
    }
    attempt.rendezvous.unasked.clear();
  }

  WorkerState& state_;
  const absl::Time now_;
  Commands& commands_;
  bool changed_ = false;
};

}  // namespace

bool Reconcile(WorkerState& state, absl::Time now, Commands& commands) {
  return Reconciler(state, now, commands).Run();
}

}  // namespace tandem::worker
