#include <algorithm>
#include <optional>
#include <utility>

#include "worker/cause.h"
#include "worker/core.h"

namespace tandem::worker {
namespace {

class Converger {
 public:
  Converger(const WorkerState& state, absl::Time now) : state_(state), now_(now) {}

  Work Run() {
    if (state_.fatal || now_ >= state_.shutdown_at) Shutdown();
    for (const auto& [key, attempt] : state_.live) Converge(key, attempt);
    if (!state_.session.drop.empty()) {
      Do(DropSession{state_.session.drop}, SessionDropped{});
    } else if (state_.session.open && work_.events.empty()) {
      Talk();  // only of what has come to rest: what changes in this round is sent in the next
    }
    if (state_.deadline_stale) Do(RenewDeadline{state_.orphan_timeout * 0.8}, DeadlineRenewed{});
    if (!state_.forgotten.empty()) {
      for (const AttemptKey& key : state_.forgotten) work_.commands.push_back(Forget{key});
      work_.events.push_back(RecordsRemoved{});
    }
    if (!state_.uploads.empty()) {
      for (const v1::UploadRequest& request : state_.uploads) work_.commands.push_back(StartUpload{request});
      work_.events.push_back(UploadsStarted{});
    }
    return std::move(work_);
  }

 private:
  void Do(Command command, Event done) {
    work_.commands.push_back(std::move(command));
    work_.events.push_back(std::move(done));
  }

  void Send(v1::WorkerMessage message) {
    message.set_seq(state_.session.next_seq + num_sent_++);
    Do(SendToController{std::move(message)}, MessageSent{});
  }

  // Everything ends; the process as soon as every end is recorded and sent, or the limit has passed.
  void Shutdown() {
    if (state_.exit_sent) return;
    if (state_.shutdown_at == absl::InfiniteFuture()) {
      work_.events.push_back(ShutdownBegun{now_});
      return;
    }
    const bool told =
        !state_.session.hello_sent || std::none_of(state_.ended.begin(), state_.ended.end(),
                                                   [](const auto& ended) { return ended.second.dirty; });
    if ((state_.live.empty() && told) || now_ >= state_.shutdown_at + kShutdownLimit) {
      Do(ExitProcess{state_.fatal.value_or("")}, ExitSent{});
      return;
    }
    for (const auto& [key, attempt] : state_.live) {
      if (!attempt.stop) {
        work_.events.push_back(
            StopDecided{key, {.reason = "WorkerStopped", .begin = now_, .grace = kDefaultGrace}});
      }
    }
  }

  void Converge(const AttemptKey& key, const AttemptState& attempt) {
    StopTheOthers(key, attempt);
    if (!attempt.refused && !attempt.stop) {
      if (!attempt.prepare_sent) return Do(Prepare{attempt.assignment}, PrepareStarted{key});
      if (!attempt.prepared) return;
    }
    bool all_gone = true;
    for (const auto& [number, rank] : attempt.ranks) {
      Converge({key, number}, attempt, rank);
      all_gone = all_gone && rank.life == Life::kGone;
    }
    // A preparation in progress would write into the folder that the record closes.
    if (all_gone && !attempt.recording && (attempt.prepared || attempt.refused || !attempt.prepare_sent)) {
      v1::AttemptStatus status = StatusOf(key, attempt, /*with_values=*/false, now_);
      status.set_ended(true);
      Do(RecordEnd{std::move(status)}, RecordingStarted{key});
    }
    PassRequestOn(key, attempt);
    if (!attempt.answers.empty()) Answer(key, attempt);
  }

  // Without a rank the attempt cannot step, so nobody needs to be asked.
  void StopTheOthers(const AttemptKey& key, const AttemptState& attempt) {
    std::optional<absl::Time> begin;
    for (const auto& [number, rank] : attempt.ranks) {
      const v1::Cause* const cause = rank.cause ? &*rank.cause : rank.failed ? &*rank.failed : nullptr;
      if (cause == nullptr) continue;
      const bool consequence = cause->class_() == v1::FAILURE_CLASS_PEER_LOST;
      const absl::Time when = consequence ? now_ + kPeerLostPause : now_;
      begin = begin ? std::min(*begin, when) : when;
    }
    if (!begin || (attempt.stop && attempt.stop->begin <= *begin)) return;
    work_.events.push_back(StopDecided{key, {.reason = "RankLost", .begin = *begin, .grace = kDefaultGrace}});
  }

  void Converge(const RankKey& key, const AttemptState& attempt, const RankState& rank) {
    const bool stopping = attempt.stop && now_ >= attempt.stop->begin;
    switch (rank.life) {
      case Life::kWaiting:
        if (attempt.stop) {
          work_.events.push_back(RankGone{
              key, CauseNeverStarted(state_.settings.worker_id, rank, attempt.stop->reason, now_), now_});
        } else {
          Do(Spawn{key, StartOf(attempt, rank)}, SpawnStarted{key});
        }
        break;
      case Life::kRunning:
        if (stopping && !rank.stop_sent) {
          v1::ToTrainer message;
          message.set_request(v1::DESIRED_STOP_NOW);
          Do(SendToRank{key, std::move(message)}, StopSent{key, now_ + attempt.stop->grace});
        } else if (rank.stop_sent && !rank.kill_sent && now_ >= rank.kill_at) {
          Do(Kill{key}, KillSent{key});
        }
        break;
      case Life::kStarting:
      case Life::kGone:
        break;
    }
  }

  v1::Start StartOf(const AttemptState& attempt, const RankState& rank) const {
    v1::Start start;
    *start.mutable_assignment() = attempt.assignment;
    start.set_rank(rank.start.rank());
    start.set_data_address(state_.data_address);
    start.set_build(state_.settings.build);
    return start;
  }

  // Ranks agree by collective when to act on a request, so telling one of them is enough.
  void PassRequestOn(const AttemptKey& key, const AttemptState& attempt) {
    const v1::Assignment& assignment = attempt.assignment;
    const bool one_shot = assignment.desired() == v1::DESIRED_STOP_AFTER_CHECKPOINT ||
                          assignment.desired() == v1::DESIRED_CHECKPOINT_AND_GO_ON;
    if (!one_shot || assignment.request() <= attempt.request_sent || attempt.stop) return;
    for (const auto& [number, rank] : attempt.ranks) {
      if (rank.life != Life::kRunning) continue;
      v1::ToTrainer message;
      message.set_request(assignment.desired());
      message.set_request_id(assignment.request());
      return Do(SendToRank{{key, number}, std::move(message)}, RequestPassedOn{key, assignment.request()});
    }
  }

  void Answer(const AttemptKey& key, const AttemptState& attempt) {
    for (const auto& [number, name] : attempt.answers) {
      v1::ToTrainer message;
      *message.mutable_value()->mutable_id() = IdOf(key);
      message.mutable_value()->set_key(name);
      message.mutable_value()->set_value(attempt.values.at(name).bytes);
      work_.commands.push_back(SendToRank{{key, number}, std::move(message)});
    }
    work_.events.push_back(AnswersSent{key});
  }

  void Talk() {
    if (!state_.session.hello_sent) {
      v1::WorkerMessage message;
      v1::Hello& hello = *message.mutable_hello();
      hello.set_worker_id(state_.settings.worker_id);
      hello.set_incarnation(state_.settings.incarnation);
      hello.set_build(state_.settings.build);
      hello.set_protocol_min(kProtocol);
      hello.set_protocol_max(kProtocol);
      hello.set_highest_term(state_.highest_term);
      SetTime(now_, *hello.mutable_now());
      *hello.mutable_inventory() = InventoryOf(state_, now_);
      Send(std::move(message));
      work_.events.push_back(HelloSent{});
      return;
    }
    for (const auto& [key, attempt] : state_.live) TellValues(key, attempt);
    for (const auto& [key, attempt] : state_.live) {
      // While its files are checked, an attempt is neither accepted nor refused.
      const bool known = attempt.prepared || attempt.refused || attempt.stop;
      if (known && (attempt.dirty || state_.heartbeat_due))
        TellStatus(key, StatusOf(key, attempt, false, now_));
    }
    for (const auto& [key, ended] : state_.ended) {
      if (ended.dirty) TellStatus(key, ended.status);
    }
    for (const Notice& notice : state_.notices) {
      if (now_ < notice.sent_at + kNoticePeriod) continue;
      v1::WorkerMessage message;
      *message.mutable_checkpoint() = notice.message;
      *message.mutable_checkpoint()->mutable_id() = IdOf(notice.attempt);
      message.mutable_checkpoint()->set_number(notice.number);
      const uint64_t seq = state_.session.next_seq + num_sent_;
      Send(std::move(message));
      work_.events.push_back(NoticeSent{notice.number, seq, now_});
    }
    if (state_.heartbeat_due) {
      if (state_.live.empty()) {
        v1::WorkerMessage message;
        message.mutable_heartbeat();
        Send(std::move(message));
      }
      work_.events.push_back(HeartbeatDone{});
    }
  }

  void TellStatus(const AttemptKey& key, const v1::AttemptStatus& status) {
    v1::WorkerMessage message;
    *message.mutable_status() = status;
    Send(std::move(message));
    work_.events.push_back(StatusSent{key});
  }

  void TellValues(const AttemptKey& key, const AttemptState& attempt) {
    for (const std::string& name : attempt.unsent_values) {
      v1::WorkerMessage message;
      v1::KvSet& set = *message.mutable_set();
      *set.mutable_id() = IdOf(key);
      set.set_key(name);
      set.set_value(attempt.values.at(name).bytes);
      set.set_rank(attempt.values.at(name).rank);
      Send(std::move(message));
    }
    if (!attempt.unsent_values.empty()) work_.events.push_back(ValuesSent{key});
    for (const std::string& name : attempt.unasked) {
      const std::set<int>& ranks = attempt.waiting.at(name);
      if (ranks.empty()) continue;  // who asked is gone
      v1::WorkerMessage message;
      v1::KvGet& get = *message.mutable_get();
      *get.mutable_id() = IdOf(key);
      get.set_key(name);
      get.set_rank(*ranks.begin());
      Send(std::move(message));
    }
    if (!attempt.unasked.empty()) work_.events.push_back(GetsAsked{key});
  }

  const WorkerState& state_;
  const absl::Time now_;
  uint64_t num_sent_ = 0;
  Work work_;
};

}  // namespace

Work Converge(const WorkerState& state, absl::Time now) { return Converger(state, now).Run(); }

}  // namespace tandem::worker
