// SPDX-License-Identifier: Apache-2.0
#include "controller/core/decide.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "controller/core/causes.h"
#include "controller/core/checkpoints.h"
#include "controller/core/new_event.h"
#include "controller/core/placement.h"
#include "platform/counted_text.h"
#include "proto/names.h"
#include "proto/reasons.h"
#include "proto/time.h"

namespace tandem::controller {
namespace {

constexpr char kController[] = "controller";

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

// Returns the latest of a time that each of the job's ranks reports; `now` if one does not report it.
template <typename Has, typename Get>
absl::Time LastOfRanks(const State& state, const v1::Job& job, absl::Time now, Has has, Get get) {
  absl::Time last = proto::FromProto(Current(job).started());
  for (const v1::RankSlot& slot : Current(job).slots()) {
    const v1::RankStatus* status = StatusOf(state, slot, CurrentAttempt(job));
    if (status == nullptr || !(status->*has)()) {
      return now;
    }
    last = std::max(last, proto::FromProto((status->*get)()));
  }
  return last;
}

// Returns the highest step that any rank has reported.
int64_t LastStep(const State& state, const v1::Job& job) {
  int64_t step = job.last_step();
  for (const v1::RankSlot& slot : Current(job).slots()) {
    if (const v1::RankStatus* status = StatusOf(state, slot, CurrentAttempt(job))) {
      step = std::max(step, status->step());
    }
  }
  return step;
}

v1::Event Failing(const State& state, const v1::Job& job, const v1::Cause& cause, absl::Time now) {
  v1::Event event = EventOf(job, v1::JOB_STATE_STOPPING, now, kController, cause.reason(), cause.message());
  event.set_step(std::max(cause.step(), LastStep(state, job)));
  *event.mutable_failed() = cause;
  if (cause.has_time()) {
    SetHappened(std::max(proto::FromProto(cause.time()), proto::FromProto(Current(job).started())), now,
                event);
  }
  return event;
}

// Whether two causes are the same, so that only one event reports them: each status contains the cause again
// and, after a new connection, with a corrected time.
bool IsSame(const v1::Cause& a, const v1::Cause& b) {
  return a.rank() == b.rank() && a.worker() == b.worker() && a.reason() == b.reason();
}

std::optional<v1::Event> NextOfStopping(const State& state, const JobEntry& entry, absl::Time now) {
  const v1::Job& job = entry.job;
  std::vector<int> unaccounted;
  std::set<std::string> away;
  for (const v1::RankSlot& slot : Current(job).slots()) {
    switch (FateOf(state, entry, slot, now)) {
      case RankFate::kRunning:
        unaccounted.push_back(slot.rank());
        break;
      case RankFate::kLost:
        away.insert(slot.worker());
        break;
      default:
        break;
    }
  }
  if (job.outcome() != v1::JOB_STATE_CANCELLED) {
    std::optional<v1::Cause> cause = FirstCause(state, entry, now);
    for (const std::string& worker : away) {
      v1::Cause lost = WorkerLost(job, worker, "is away");
      if (!cause || Precedes(lost, *cause)) {
        cause = std::move(lost);
      }
    }
    if (cause && (!job.has_cause() || (Precedes(*cause, job.cause()) && !IsSame(*cause, job.cause())))) {
      return Failing(state, job, *cause, now);
    }
  }
  if (!unaccounted.empty()) {
    return std::nullopt;
  }
  v1::Event event = EventOf(job, job.outcome(), now, kController, job.reason(), job.message());
  SetHappened(LastOfRanks(state, job, now, &v1::RankStatus::has_exited_at, &v1::RankStatus::exited_at), now,
              event);
  event.set_step(LastStep(state, job));
  if (job.outcome() == v1::JOB_STATE_SUCCEEDED) {
    event.set_reason(proto::ReasonCode("Finished"));
    event.set_message("every rank finished and exited with 0");
    return event;
  }
  *event.mutable_failed() = job.cause();
  if (!away.empty()) {
    event.set_message(
        absl::StrCat(job.message(), "; not heard of: the ranks of worker ", absl::StrJoin(away, ", ")));
  }
  return event;
}

// Returns the next transition of a job that has ranks, if what was observed allows one.
std::optional<v1::Event> NextOf(const State& state, const JobEntry& entry, absl::Time now) {
  const v1::Job& job = entry.job;
  if (job.state() == v1::JOB_STATE_STOPPING) {
    return NextOfStopping(state, entry, now);
  }
  if (const std::optional<v1::Cause> cause = FirstCause(state, entry, now)) {
    // The wait keeps nothing running, because the daemons stop the remaining ranks on their own.
    return IsWaitingForCause(state, entry, *cause, now) ? std::nullopt
                                                        : std::optional(Failing(state, job, *cause, now));
  }
  const AttemptKey key = CurrentAttempt(job);
  const auto& slots = Current(job).slots();
  if (job.state() == v1::JOB_STATE_ADMITTED) {
    const std::vector<std::string> workers = WorkersOf(job);
    if (std::all_of(workers.begin(), workers.end(),
                    [&](const std::string& worker) { return StatusOf(state, worker, key) != nullptr; })) {
      return EventOf(job, v1::JOB_STATE_STARTING, now, kController, proto::ReasonCode("Accepted"),
                     "every worker has accepted the attempt");
    }
    return std::nullopt;
  }
  if (job.state() == v1::JOB_STATE_STARTING) {
    const v1::Ready* ready = nullptr;
    for (const v1::RankSlot& slot : slots) {
      const v1::RankStatus* status = StatusOf(state, slot, key);
      if (status == nullptr || !status->has_ready()) {
        return std::nullopt;
      }
      ready = &status->ready();
    }
    v1::Event event = EventOf(job, v1::JOB_STATE_RUNNING, now, kController, proto::ReasonCode("Ready"),
                              "every rank is ready");
    SetHappened(LastOfRanks(state, job, now, &v1::RankStatus::has_ready_at, &v1::RankStatus::ready_at), now,
                event);
    event.set_step(ready->resumed_step());
    *event.mutable_admitted() = Current(job);
    event.mutable_admitted()->set_resumed_step(ready->resumed_step());
    event.mutable_admitted()->set_resumed_from(ready->resumed_from());
    *event.mutable_admitted()->mutable_started_from() = ready->started_from();
    event.mutable_admitted()->set_program_digest(ready->program_digest());
    *event.mutable_admitted()->mutable_ready() = event.time();
    return event;
  }
  // RUNNING
  if (std::optional<v1::Event> answer = AnswerOf(state, entry, now)) {
    return answer;
  }
  for (const v1::RankSlot& slot : slots) {
    const v1::RankStatus* status = StatusOf(state, slot, key);
    if (status == nullptr || !status->finished()) {
      return std::nullopt;
    }
  }
  v1::Event event = EventOf(job, v1::JOB_STATE_STOPPING, now, kController, proto::ReasonCode("Finishing"),
                            "every rank has finished; waiting for their exits");
  SetHappened(LastOfRanks(state, job, now, &v1::RankStatus::has_finished_at, &v1::RankStatus::finished_at),
              now, event);
  event.set_step(LastStep(state, job));
  return event;
}

// Admits the head of the queue, or changes the reason for which it waits.
std::optional<v1::Event> NextOfHead(const State& state, const v1::Job& job, absl::Time now) {
  Placement placement = Place(state, job);
  if (placement.slots.empty()) {
    if (job.reason() == placement.reason && job.message() == placement.message) {
      return std::nullopt;
    }
    return EventOf(job, v1::JOB_STATE_QUEUED, now, kController, std::move(placement.reason),
                   std::move(placement.message));
  }
  std::set<std::string> workers;
  for (const v1::RankSlot& slot : placement.slots) {
    workers.insert(slot.worker());
  }
  v1::Event event =
      EventOf(job, v1::JOB_STATE_ADMITTED, now, kController, proto::ReasonCode("Placed"),
              absl::StrCat(platform::CountedText(placement.slots.size(), "rank"), " on ",
                           absl::StrJoin(workers, ", "), ", device ", proto::LowerName(placement.device)));
  v1::Attempt& attempt = *event.mutable_admitted();
  attempt.set_number(job.attempt() + 1);
  attempt.mutable_slots()->Assign(placement.slots.begin(), placement.slots.end());
  attempt.set_device(placement.device);
  *attempt.mutable_started() = proto::ToProto(now);
  event.set_attempt(attempt.number());
  return event;
}

// Returns the next change in the queue: of a job that needs more than the workers have, of the first job
// that does not (the head), or of a job whose reason does not say yet that it waits behind others.
std::optional<v1::Event> NextOfQueue(const State& state, absl::Time now) {
  const JobTable::Tickets& queue = state.jobs.queue();
  // Before that time, workers may not have returned to a controller that has just started.
  const bool is_known = !state.workers.empty() && now - state.awake_since >= state.limits.worker_timeout;
  auto head = queue.begin();
  for (; head != queue.end(); ++head) {
    const v1::Job& job = state.jobs.at(head->second).job;
    const std::optional<std::string> why = is_known ? WhyBeyondCapacity(state, job) : std::nullopt;
    if (!why.has_value()) {
      break;
    }
    if (job.reason() != proto::ReasonCode("BeyondCapacity") || job.message() != *why) {
      return EventOf(job, v1::JOB_STATE_QUEUED, now, kController, proto::ReasonCode("BeyondCapacity"), *why);
    }
  }
  if (head == queue.end()) {
    return std::nullopt;
  }
  if (std::optional<v1::Event> event = NextOfHead(state, state.jobs.at(head->second).job, now)) {
    return event;
  }
  const auto behind = state.jobs.queue_to_update().upper_bound(*head);
  return behind == state.jobs.queue_to_update().end()
             ? std::nullopt
             : std::optional(EventOf(state.jobs.at(behind->second).job, v1::JOB_STATE_QUEUED, now,
                                     kController, proto::ReasonCode("BehindOthers"), kBehindOthersMessage));
}

Decision DecideSubmit(const State& state, const Submit& submit, absl::Time now) {
  const std::string name = submit.resolved.name().empty() ? submit.id : submit.resolved.name();
  if (const v1::Job* const known = state.jobs.FindRequest(submit.owner, submit.request_id);
      known != nullptr) {
    return {.status = CheckSameSpec(*known, submit), .job_id = known->id()};
  }
  if (const v1::Job* const other = state.jobs.FindLiveByName(name); other != nullptr) {
    return {.status = absl::AlreadyExistsError(absl::StrCat("name: job ", other->id(), " is called ", name,
                                                            " and is ", proto::ValueName(other->state()),
                                                            "; cancel it or choose another name")),
            .job_id = other->id()};
  }
  // Two jobs that save in one folder would remove each other's steps.
  const std::string& directory = submit.resolved.checkpoint().directory();
  if (const v1::Job* const other = state.jobs.FindLiveByFolder(directory); other != nullptr) {
    return {.status = absl::AlreadyExistsError(
                absl::StrCat("checkpoint.directory: job ", other->id(), " saves in ", directory, " and is ",
                             proto::ValueName(other->state()), "; cancel it or choose another directory")),
            .job_id = other->id()};
  }
  if (state.jobs.num_live() >= state.limits.live_jobs) {
    return {.status =
                absl::ResourceExhaustedError(absl::StrCat("the queue is full: ", state.jobs.num_live(),
                                                          " jobs are live; try again when some have ended"))};
  }
  v1::Job job;
  job.set_id(submit.id);
  job.set_name(name);
  job.set_owner(submit.owner);
  job.set_request_id(submit.request_id);
  *job.mutable_submitted() = submit.submitted;
  *job.mutable_resolved() = submit.resolved;
  job.set_resolved_digest(submit.resolved_digest);
  job.set_reason(proto::ReasonCode("Submitted"));
  *job.mutable_created() = proto::ToProto(now);
  v1::Event event = EventOf(job, v1::JOB_STATE_QUEUED, now, submit.owner, proto::ReasonCode("Submitted"), "");
  *event.mutable_submitted() = std::move(job);
  return {.events = {std::move(event)}, .job_id = submit.id};
}

Decision DecideCancel(const State& state, const Cancel& cancel, absl::Time now) {
  const JobEntry* entry = FindLive(state, cancel.job);
  if (entry == nullptr) {
    return NoLiveJob(cancel.job);
  }
  const v1::Job& job = entry->job;
  if (job.state() == v1::JOB_STATE_STOPPING && job.outcome() != v1::JOB_STATE_SUCCEEDED) {
    return {.job_id = job.id()};  // the job is ending already
  }
  if (cancel.checkpoint && job.state() == v1::JOB_STATE_RUNNING) {
    v1::CheckpointRequested wanted;
    wanted.set_stop(true);
    wanted.set_reason(cancel.reason);
    return RequestCheckpoint(*entry, wanted, cancel.actor, now);
  }
  v1::Cause cause =
      MakeCause(v1::FAILURE_CLASS_REQUESTED, cancel.reason, absl::StrCat("cancelled by ", cancel.actor));
  *cause.mutable_time() = proto::ToProto(now);
  const bool queued = job.state() == v1::JOB_STATE_QUEUED;
  v1::Event event = EventOf(job, queued ? v1::JOB_STATE_CANCELLED : v1::JOB_STATE_STOPPING, now, cancel.actor,
                            cause.reason(), cause.message());
  if (!queued) {
    event.set_step(LastStep(state, job));
  }
  *event.mutable_failed() = std::move(cause);
  return {.events = {std::move(event)}, .job_id = job.id()};
}

Decision DecideWorker(const State& state, const std::string& worker, const std::string& session,
                      absl::Time now) {
  const WorkerEntry& entry = state.workers.at(worker);
  const bool connected = entry.connected;
  const auto& [reason, what] =
      connected        ? std::pair(proto::ReasonCode("WorkerConnected"), "connected")
      : HasLeft(entry) ? std::pair(proto::ReasonCode("WorkerLeft"), "has left, as it was asked to")
                       : std::pair(proto::ReasonCode("WorkerDisconnected"), "is away");
  v1::Event event;
  *event.mutable_time() = proto::ToProto(now);
  event.set_reason(reason);
  event.set_message(absl::StrCat("worker ", worker, " ", what, ", session ", session));
  event.set_actor(worker);
  event.set_schema(kEventSchema);
  event.mutable_worker()->set_worker_id(worker);
  event.mutable_worker()->set_connected(connected);
  return {.events = {std::move(event)}};
}

// Decides the notices of its ranks first, because what the inventory shows may end their jobs.
Decision DecideHello(const State& state, const WorkerHello& in, absl::Time now) {
  Decision out = DecideWorker(state, in.hello.worker_id(), in.session, now);
  for (const v1::CheckpointNotice& notice : in.hello.inventory().notices()) {
    const auto more = std::count_if(out.events.begin(), out.events.end(), [&](const v1::Event& event) {
      return event.job_id() == notice.id().job_id() &&
             (event.has_checkpoint_warning() || event.has_training_warning());
    });
    Decision noticed =
        DecideNotice(state, CheckpointNoticed{.worker = in.hello.worker_id(), .notice = notice}, now,
                     static_cast<int>(more));
    std::move(noticed.events.begin(), noticed.events.end(), std::back_inserter(out.events));
  }
  return out;
}

// The report was stored in the state, if there was room for it; Tick decides what follows.
Decision DecideReport(const State& state, const AttemptReport& in) {
  const auto worker = state.workers.find(in.worker);
  if (worker == state.workers.end() || StatusOf(state, in.worker, KeyOf(in.status.id())) != nullptr) {
    return {};
  }
  return {.status = absl::ResourceExhaustedError(absl::StrCat(
              "worker ", in.worker, " reports more than ", worker->second.attempts.size(),
              " attempts, which its slots cannot hold; it lists all of them when it connects again"))};
}

}  // namespace

absl::Status CheckSameSpec(const v1::Job& known, const Submit& submit) {
  return known.submitted().SerializeAsString() == submit.submitted.SerializeAsString()
             ? absl::OkStatus()
             : absl::AlreadyExistsError(
                   absl::StrCat("request_id ", submit.request_id, " belongs to job ", known.id(),
                                ", which has another spec; use another request_id for another job"));
}

Decision Decide(const State& state, const Input& input, absl::Time now) {
  return std::visit(
      Overloaded{
          [&](const Submit& in) { return DecideSubmit(state, in, now); },
          [&](const Cancel& in) { return DecideCancel(state, in, now); },
          [&](const AskCheckpoint& in) { return DecideAskCheckpoint(state, in, now); },
          [&](const WorkerHello& in) { return DecideHello(state, in, now); },
          [&](const WorkerDisconnected& in) {
            const auto it = state.workers.find(in.worker);
            const bool current = it != state.workers.end() && it->second.session == in.session;
            return current ? DecideWorker(state, in.worker, in.session, now) : Decision();
          },
          [&](const WorkerDraining&) { return Decision(); },  // it was observed; Tick decides what follows
          [&](const AttemptReport& in) { return DecideReport(state, in); },
          [&](const CheckpointNoticed& in) { return DecideNotice(state, in, now); },
          [&](const Tick&) {
            Decision out;
            for (const std::string& id : state.jobs.with_ranks()) {
              if (std::optional<v1::Event> event = NextOf(state, state.jobs.at(id), now)) {
                out.events.push_back(*std::move(event));
              }
            }
            // Changes the queue once at a time, because each change may take slots from the next job.
            if (out.events.empty()) {
              if (std::optional<v1::Event> event = NextOfQueue(state, now)) {
                out.events.push_back(*std::move(event));
              }
            }
            return out;
          },
      },
      input);
}

Decision Step(const Input& input, absl::Time now, State& state) {
  const auto* const report = std::get_if<AttemptReport>(&input);
  const bool is_news = report == nullptr || IsNews(state, *report);
  Observe(input, now, state);
  Decision out = Decide(state, input, now);
  out.num_own = out.events.size();
  if (!is_news) {
    return out;
  }
  if (report != nullptr && IsLive(state, KeyOf(report->status.id()))) {
    std::optional<v1::Event> next = NextOf(state, state.jobs.at(report->status.id().job_id()), now);
    if (!next.has_value()) {
      return out;
    }
    out.events.push_back(*std::move(next));
  }
  size_t applied = 0;
  while (true) {
    for (; applied < out.events.size(); ++applied) {
      out.events[applied].set_seq(state.last_seq + 1);
      Apply(out.events[applied], state);
    }
    Decision next = Decide(state, Tick{}, now);
    if (next.events.empty()) {
      return out;
    }
    for (v1::Event& event : next.events) {
      out.events.push_back(std::move(event));
    }
  }
}

}  // namespace tandem::controller
