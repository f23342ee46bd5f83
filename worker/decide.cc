#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/core.h"

namespace tandem::worker {
namespace {

absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

absl::Duration GraceOf(const v1::Assignment& assignment) {
  return assignment.has_grace() ? FromProto(assignment.grace()) : kDefaultGrace;
}

const RankState* FindRank(const WorkerState& state, const RankKey& key) {
  const auto attempt = state.live.find(key.attempt);
  if (attempt == state.live.end()) return nullptr;
  const auto rank = attempt->second.ranks.find(key.rank);
  return rank == attempt->second.ranks.end() ? nullptr : &rank->second;
}

v1::Cause Refusal(v1::FailureClass failure, const std::string& reason, const std::string& message,
                  const WorkerState& state, absl::Time now) {
  v1::Cause cause;
  cause.set_class_(failure);
  cause.set_reason(reason);
  cause.set_message(message);
  cause.set_worker(state.settings.worker_id);
  SetTime(now, *cause.mutable_time());
  return cause;
}

// Ids become names of folders.
bool IsSafeName(const std::string& id) {
  return !id.empty() && id.size() <= 64 && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

// Why this worker cannot run an assignment, before any file is looked at; empty: it can.
std::string Unfit(const WorkerState& state, const v1::Assignment& assignment) {
  if (assignment.ranks().empty()) return "the assignment has no rank for this worker";
  std::set<int> ranks;
  std::set<int> places;
  for (const v1::RankStart& start : assignment.ranks()) {
    const auto place = std::find_if(state.settings.places.begin(), state.settings.places.end(),
                                    [&](const v1::Place& p) { return p.index() == start.place(); });
    if (place == state.settings.places.end()) {
      return absl::StrCat("rank ", start.rank(), " is assigned to place ", start.place(),
                          ", but this worker has ", state.settings.places.size());
    }
    if (assignment.resolved().resources().device() == v1::DEVICE_CUDA && place->device() != v1::DEVICE_CUDA) {
      return absl::StrCat("rank ", start.rank(), " needs a GPU, but place ", start.place(),
                          " is a CPU place");
    }
    if (!ranks.insert(start.rank()).second) return absl::StrCat("rank ", start.rank(), " is assigned twice");
    if (!places.insert(start.place()).second)
      return absl::StrCat("place ", start.place(), " is assigned twice");
    for (const auto& [key, attempt] : state.live) {
      for (const auto& [number, rank] : attempt.ranks) {
        if (rank.life != Life::kGone && rank.start.place() == start.place()) {
          return absl::StrCat("place ", start.place(), " is still in use by rank ", number, " of job ",
                              key.job);
        }
      }
    }
  }
  return "";
}

class Decider {
 public:
  Decider(const WorkerState& state, absl::Time now) : state_(state), now_(now) {}

  std::vector<Event> TakeEvents() { return std::move(events_); }

  void operator()(const Connected& input) { Add(SessionOpened{now_, input.data_address}); }
  void operator()(const Disconnected&) { Add(SessionClosed{}); }

  void operator()(const FromController& input) {
    const v1::ControllerMessage& message = input.message;
    const bool greeting = message.item_case() == v1::ControllerMessage::kWelcome ||
                          message.item_case() == v1::ControllerMessage::kRefused;
    // A controller that was turned down may have more on the way.
    if (!state_.session.open || (!state_.session.welcomed && !greeting)) return;
    if (message.item_case() == v1::ControllerMessage::kWelcome) {
      const v1::Welcome& welcome = message.welcome();
      if (welcome.term() < state_.highest_term) {
        return Add(SessionUnfit{absl::StrCat("the controller's term ", welcome.term(), " is older than term ",
                                             state_.highest_term, ", which this worker has seen")});
      }
      if (!state_.live.empty() && welcome.store_id() != state_.store_id) {
        return Add(SessionUnfit{
            absl::StrCat("this controller keeps other jobs (store ", welcome.store_id(),
                         ") than the one whose ranks run here (store ", state_.store_id,
                         "), and would stop them; the worker waits for that one, or for their end")});
      }
      if (welcome.protocol() != kProtocol) {
        return Add(SessionUnfit{absl::StrCat("the controller speaks protocol ", welcome.protocol(),
                                             ", this worker only ", kProtocol)});
      }
    }
    Add(ControllerHeard{now_});
    if (message.ack() > 0) Add(Acked{message.ack()});
    switch (message.item_case()) {
      case v1::ControllerMessage::kWelcome:
        Welcome(message.welcome());
        break;
      case v1::ControllerMessage::kAssignments:
        Take(message.assignments());
        break;
      case v1::ControllerMessage::kValue:
        Learn(KeyOf(message.value().id()), message.value().key(), {.bytes = message.value().value()});
        break;
      case v1::ControllerMessage::kUpload:
        Add(UploadAsked{message.upload()});
        break;
      case v1::ControllerMessage::kRefused: {
        const std::string why =
            absl::StrCat("the controller refuses this worker: ", message.refused().reason(), ": ",
                         message.refused().message());
        if (message.refused().final()) {
          Add(WorkerRefused{why});
        } else {
          Add(SessionUnfit{why});
        }
        break;
      }
      case v1::ControllerMessage::kBeat:
      case v1::ControllerMessage::ITEM_NOT_SET:
        break;
    }
  }

  void operator()(const Prepared& input) {
    if (!input.violations.empty()) {
      return Add(AttemptRefused{
          input.attempt, Refusal(v1::FAILURE_CLASS_USER, "InvalidSpec", input.violations, state_, now_)});
    }
    if (!input.problem.empty()) {
      return Add(AttemptRefused{input.attempt, Refusal(v1::FAILURE_CLASS_INFRASTRUCTURE, "WorkerDisk",
                                                       input.problem, state_, now_)});
    }
    Add(AttemptPrepared{input.attempt, input.program});
  }

  void operator()(const RankSpawned& input) { Add(RankStarted{input.rank, input.pid}); }

  void operator()(const SpawnFailed& input) {
    if (const RankState* const rank = FindRank(state_, input.rank)) {
      Add(RankGone{input.rank, CauseOfNoStart(state_.settings.worker_id, *rank, input.why, now_), now_});
    }
  }

  void operator()(const RankExited& input) {
    const RankState* const found = FindRank(state_, input.rank);
    if (found == nullptr) return;
    RankState rank = *found;
    rank.sample = input.sample;
    Add(RankSampled{input.rank, input.sample, now_});
    Add(RankGone{
        input.rank,
        CauseOfExit(state_.settings.worker_id, state_.live.at(input.rank.attempt), rank, input.exit, now_),
        now_});
  }

  void operator()(const FromRank& input) {
    const RankState* const rank = FindRank(state_, input.rank);
    if (rank == nullptr || rank->life == Life::kGone) return;
    const AttemptKey& attempt = input.rank.attempt;
    const v1::FromTrainer& message = input.message;
    switch (message.item_case()) {
      case v1::FromTrainer::kSet:
        Learn(attempt, message.set().key(), {.bytes = message.set().value(), .rank = input.rank.rank});
        break;
      case v1::FromTrainer::kGet:
        Add(ValueWanted{input.rank, message.get().key()});
        break;
      case v1::FromTrainer::kReady:
        Add(RankReady{input.rank, message.ready(), now_});
        break;
      case v1::FromTrainer::kCheckpoint:
      case v1::FromTrainer::kCheckpointWarning: {
        v1::CheckpointNotice notice;
        SetTime(now_, *notice.mutable_at());
        if (message.has_checkpoint()) {
          *notice.mutable_committed() = message.checkpoint();
        } else {
          *notice.mutable_warning() = message.checkpoint_warning();
        }
        Add(CheckpointSeen{attempt, std::move(notice)});
        break;
      }
      case v1::FromTrainer::kFailed:
        if (!rank->failed) {
          RankState then = *rank;
          if (input.sample) then.sample = *input.sample;
          Add(RankFailed{input.rank,
                         CompleteFailed(message.failed(), state_.settings.worker_id, then, now_)});
        }
        break;
      case v1::FromTrainer::kFinished:
        Add(RankFinished{input.rank, now_});
        break;
      case v1::FromTrainer::kRequestDone:
        Add(worker::RequestDone{attempt, message.request_done(), message.request_error()});
        break;
      case v1::FromTrainer::kTable:     // of the report queue
      case v1::FromTrainer::kReport:    // of the report queue
      case v1::FromTrainer::kProfiled:  // of the profiles
      case v1::FromTrainer::ITEM_NOT_SET:
        break;
    }
  }

  void operator()(const Sampled& input) {
    for (const auto& [rank, sample] : input.samples) Add(RankSampled{rank, sample, now_});
    if (state_.session.open && now_ - state_.session.heard_at > kLongestSilence) {
      Add(SessionUnfit{absl::StrCat("the controller, which beats, has not been heard for ",
                                    absl::FormatDuration(kLongestSilence))});
    }
    Add(BeatDue{});
  }

  void operator()(const EndRecorded& input) { Add(AttemptEnded{input.attempt}); }
  void operator()(const ShutdownAsked&) { Add(ShutdownBegun{now_}); }
  void operator()(const Woken&) {}

 private:
  void Add(Event event) { events_.push_back(std::move(event)); }

  void Welcome(const v1::Welcome& welcome) {
    Add(Welcomed{.term = welcome.term(),
                 .store_id = welcome.store_id(),
                 .orphan_timeout = welcome.has_orphan_timeout() ? FromProto(welcome.orphan_timeout())
                                                                : absl::InfiniteDuration(),
                 .beat = welcome.has_beat() ? FromProto(welcome.beat()) : absl::Seconds(1)});
    if (welcome.has_assignments()) Take(welcome.assignments());
  }

  void Take(const v1::Assignments& assignments) {
    std::set<AttemptKey> listed;
    // Stops come first: a place that they free may be assigned in the same message only after the ranks are
    // gone, so an assignment never overtakes them.
    for (const v1::Assignment& assignment : assignments.all()) listed.insert(KeyOf(assignment.id()));
    for (const auto& [key, attempt] : state_.live) {
      if (!listed.contains(key) && !attempt.stop) {
        Add(StopDecided{key, {.reason = "Withdrawn", .begin = now_, .grace = GraceOf(attempt.assignment)}});
      }
    }
    for (const v1::Assignment& assignment : assignments.all()) Take(assignment);
    for (const v1::AttemptId& id : assignments.forget()) {
      if (state_.ended.contains(KeyOf(id))) Add(AttemptForgotten{KeyOf(id)});
    }
  }

  void Take(const v1::Assignment& assignment) {
    const AttemptKey key = KeyOf(assignment.id());
    if (state_.ended.contains(key)) return Add(StatusDue{key});
    const bool stop = assignment.desired() == v1::DESIRED_STOP_NOW;
    if (state_.live.contains(key)) {
      Add(AssignmentChanged{assignment});
    } else {
      if (!IsSafeName(key.job) || key.attempt < 1) return;  // no controller of ours sends it
      if (state_.shutdown_at != absl::InfiniteFuture()) return;
      const std::string unfit = stop ? "" : Unfit(state_, assignment);
      Add(AttemptAccepted{assignment});
      if (!unfit.empty()) {
        Add(AttemptRefused{key,
                           Refusal(v1::FAILURE_CLASS_INFRASTRUCTURE, "BadAssignment", unfit, state_, now_)});
      }
    }
    if (stop) {
      const std::string reason = assignment.reason().empty() ? "Stopped" : assignment.reason();
      Add(StopDecided{key, {.reason = reason, .begin = now_, .grace = GraceOf(assignment)}});
    }
  }

  void Learn(const AttemptKey& key, const std::string& name, Value value) {
    const auto attempt = state_.live.find(key);
    // Write-once: the first value stays.
    if (attempt == state_.live.end() || attempt->second.values.contains(name)) return;
    Add(ValueKnown{key, name, std::move(value)});
  }

  const WorkerState& state_;
  const absl::Time now_;
  std::vector<Event> events_;
};

}  // namespace

std::vector<Event> Decide(const WorkerState& state, const Input& input, absl::Time now) {
  Decider decider(state, now);
  std::visit(decider, input);
  return decider.TakeEvents();
}

}  // namespace tandem::worker
