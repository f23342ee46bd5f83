// SPDX-License-Identifier: Apache-2.0
#include "controller/engine.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "controller/core/assignments.h"
#include "platform/failpoint.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace tandem::controller {
namespace {

constexpr size_t kBatch = 256;  // items of one commit
// How often the engine looks for room while it commits nothing.
constexpr absl::Duration kLookForRoom = absl::Seconds(30);
// A batch that takes longer than this part of the workers' timeout was a standstill.
constexpr int kStandstillPart = 4;

std::set<std::string> JobsOf(const std::vector<v1::Event>& events) {
  std::set<std::string> ids;
  for (const v1::Event& event : events) {
    ids.insert(event.job_id());
  }
  ids.erase("");  // events that belong to no job
  return ids;
}

// Hits the failpoints of events: "controller.before_commit.submit".
void HitFailpoints([[maybe_unused]] const char* when, [[maybe_unused]] const std::vector<v1::Event>& events) {
#ifdef TANDEM_FAILPOINTS
  for (const v1::Event& event : events) {
    const std::string kind = KindOf(event);
    TANDEM_FAILPOINT(
        absl::StrCat("controller.", when, "_commit.", kind == "submitted" ? "submit" : kind).c_str());
  }
#endif
}

}  // namespace

Engine::Engine(Store& store, const platform::Clock& clock, State state, Outbox outbox)
    : store_(store), clock_(clock), outbox_(std::move(outbox)), state_(std::move(state)) {
  state_.awake_since = clock_.Now();
  looked_at_ = clock_.Now();
}

Engine::~Engine() { Stop(); }

void Engine::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Engine::Stop() {
  {
    const absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

bool Engine::Enqueue(Item item) {
  const absl::MutexLock lock(&mu_);
  if (stopping_) {
    return false;
  }
  if (auto* decided = std::get_if<Decided>(&item)) {
    decided->posted = clock_.Now();  // under the lock, so that these times are in the order of the queue
  }
  queue_.push_back(std::move(item));
  return true;
}

void Engine::Post(Input input, std::function<void(Reply)> done) {
  if (!Enqueue(Decided{std::move(input), done}) && done) {
    done({.status = absl::UnavailableError("the controller is shutting down")});
  }
}

void Engine::Set(std::string worker, v1::KvSet set, std::function<void(const absl::Status&)> done) {
  Enqueue(KeyCall{[this, worker = std::move(worker), set = std::move(set)] { return SetKey(worker, set); },
                  std::move(done)});
}

void Engine::Get(std::string worker, v1::KvGet get, std::function<void(const absl::Status&)> done) {
  Enqueue(KeyCall{[this, worker = std::move(worker), get = std::move(get)] { return GetKey(worker, get); },
                  std::move(done)});
}

void Engine::Fail(absl::Status status) { Enqueue(Failed{std::move(status)}); }

bool Engine::Query(std::function<void(const State&)> look) { return Enqueue(Queried{std::move(look)}); }

bool Engine::Look(const std::function<void(const State&)>& look) {
  absl::Notification done;
  if (!Query([&](const State& state) {
        look(state);
        done.Notify();
      })) {
    return false;
  }
  done.WaitForNotification();
  return true;
}

void Engine::Run() {
  while (true) {
    std::vector<Item> batch;
    {
      const absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(
          +[](Engine* self)
               ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mu_) { return self->stopping_ || !self->queue_.empty(); },
          this));
      if (queue_.empty()) {
        return;
      }
      while (!queue_.empty() && batch.size() < kBatch) {
        batch.push_back(std::move(queue_.front()));
        queue_.pop_front();
      }
    }
    Process(std::move(batch));
  }
}

Decision Engine::Decide(const Input& input, absl::Time now, Reply& reply) {
  if (const auto* submit = std::get_if<Submit>(&input); submit != nullptr && !submit->request_id.empty()) {
    // A job that has ended is only in the store, which still knows its request id.
    const absl::StatusOr<std::optional<v1::Job>> ended =
        store_.FindRequest(submit->owner, submit->request_id);
    if (!ended.ok()) {
      reply.status = ended.status();
      return {};
    }
    if (ended->has_value() && !state_.jobs.contains((*ended)->id())) {
      reply.job = **ended;
      reply.status = CheckSameSpec(reply.job, *submit);
      return {};
    }
  }
  Decision decision = Step(input, now, state_);
  reply.status = decision.status;
  if (!decision.job_id.empty()) {
    reply.job = state_.jobs.at(decision.job_id).job;
  }
  return decision;
}

absl::Status Engine::SetKey(const std::string& worker, const v1::KvSet& set) {
  const AttemptKey attempt = KeyOf(set.id());
  if (!RunsOn(state_, attempt, worker) || !IsConnecting(state_, attempt)) {
    return absl::OkStatus();  // fenced: the attempt is older, another worker's, or already over
  }
  Rendezvous::Answer answer;
  TANDEM_ASSIGN_OR_RETURN(const bool stays, rendezvous_.Set(set, worker, answer));
  if (!stays) {
    platform::Log(platform::LogLevel::kWarning, "a rendezvous key was set twice; the first value stays",
                  {{"job", set.id().job_id()}, {"key", set.key()}, {"rank", absl::StrCat(set.rank())}});
  }
  for (const std::string& worker : answer.workers) {
    values_.emplace_back(worker, answer.value);
  }
  return absl::OkStatus();
}

absl::Status Engine::GetKey(const std::string& worker, const v1::KvGet& get) {
  const AttemptKey attempt = KeyOf(get.id());
  if (!RunsOn(state_, attempt, worker) || !IsConnecting(state_, attempt)) {
    return absl::OkStatus();
  }
  v1::KvValue value;
  TANDEM_ASSIGN_OR_RETURN(const bool known, rendezvous_.Get(get, worker, value));
  if (known) {
    values_.emplace_back(worker, std::move(value));
  }
  return absl::OkStatus();
}

void Engine::Take(Decided decided, BatchResult& out) {
  if (auto* const hello = std::get_if<WorkerHello>(&decided.input)) {
    FindUnknown(*hello);
  }
  Reply reply;
  // The report may change what the worker is to be sent.
  const auto* const report = std::get_if<AttemptReport>(&decided.input);
  if (report != nullptr && MayChangeAssignments(state_, *report)) {
    dirty_.insert(report->worker);
  }
  Decision decision = Decide(decided.input, decided.posted, reply);
  if (const auto* hello = std::get_if<WorkerHello>(&decided.input)) {
    out.hellos.emplace_back(out.answers.size(), hello->hello.worker_id());
    for (const v1::AttemptStatus& status : hello->hello.inventory().attempts()) {
      outbox_.reported(state_, KeyOf(status.id()));
    }
  } else if (report != nullptr) {
    outbox_.reported(state_, KeyOf(report->status.id()));
  } else if (const auto* gone = std::get_if<WorkerDisconnected>(&decided.input)) {
    const auto it = state_.workers.find(gone->worker);
    if (it != state_.workers.end() && !it->second.connected) {
      rendezvous_.Forget(gone->worker);
      pushed_.erase(gone->worker);
    }
  }
  for (v1::Event& event : decision.events) {
    const auto it = state_.jobs.find(event.job_id());
    if (it != state_.jobs.end()) {
      for (const std::string& worker : WorkersOf(it->second.job)) {
        dirty_.insert(worker);
      }
    }
    out.events.push_back(std::move(event));
  }
  out.answers.push_back({.decided = std::move(decided),
                         .reply = std::move(reply),
                         .job_id = decision.job_id,
                         .stores = decision.num_own > 0});
}

void Engine::Take(Item item, BatchResult& out) {
  if (auto* decided = std::get_if<Decided>(&item)) {
    Take(std::move(*decided), out);
  } else if (auto* call = std::get_if<KeyCall>(&item)) {
    out.acknowledgements.push_back([done = std::move(call->done), status = call->act()] { done(status); });
  } else if (auto* queried = std::get_if<Queried>(&item)) {
    out.queries.push_back(std::move(*queried));
  } else if (auto* failed = std::get_if<Failed>(&item)) {
    out.failed.Update(failed->status);
  }
}

absl::Status Engine::Commit(const std::vector<v1::Event>& events) {
  std::vector<const JobEntry*> changed;
  for (const std::string& id : JobsOf(events)) {
    if (const auto it = state_.jobs.find(id); it != state_.jobs.end()) {
      changed.push_back(&it->second);
    }
  }
  HitFailpoints("before", events);
  const auto start = std::chrono::steady_clock::now();
  TANDEM_RETURN_IF_ERROR(store_.Commit(events, changed));
  outbox_.commit_seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  HitFailpoints("after", events);
  return absl::OkStatus();
}

absl::Status Engine::StoreRoom() const {
  const absl::MutexLock lock(&mu_);
  return room_;
}

void Engine::SetRoom(const absl::Status& room) {
  bool had_room = false;
  {
    const absl::MutexLock lock(&mu_);
    had_room = room_.ok();
    room_ = room;
  }
  if (!room.ok()) {
    outbox_.no_room(room);
  } else if (!had_room) {
    outbox_.room_again();
  }
}

// Makes the decisions of a batch durable, or undoes them if there is no room.
absl::Status Engine::CommitOrUndo(BatchResult& out) {
  const bool had_room = StoreRoom().ok();
  const absl::Status kept = out.events.empty() ? absl::OkStatus() : Commit(out.events);
  // A small commit may succeed although most would not, and without commits a full disk would not be
  // noticed.
  const absl::Time now = clock_.Now();
  const bool due = !had_room || (out.events.empty() && now - looked_at_ >= kLookForRoom);
  if (due || !out.events.empty()) {
    looked_at_ = now;
  }
  const absl::Status room = kept.ok() && due ? store_.CheckRoom() : kept;
  if (!room.ok() && !absl::IsResourceExhausted(room)) {
    return room;
  }
  if (!had_room || !room.ok()) {
    SetRoom(room);
  }
  if (!kept.ok()) {
    TANDEM_RETURN_IF_ERROR(Undo(out.events));
    Refuse(kept, out);
    Prune(state_);  // also a worker whose leave could not be stored is gone
  }
  return absl::OkStatus();
}

// Restores the jobs as they are stored. What was observed of workers stays, so the next input decides again
// what follows from it.
absl::Status Engine::Undo(const std::vector<v1::Event>& events) {
  for (const std::string& id : JobsOf(events)) {
    TANDEM_ASSIGN_OR_RETURN(std::optional<JobEntry> row, store_.Row(id));
    state_.jobs.Remove(id);
    if (row.has_value()) {
      state_.jobs.Add(*std::move(row));
    }
  }
  state_.last_seq = store_.LastSeq();
  return absl::OkStatus();
}

void Engine::Refuse(const absl::Status& status, BatchResult& out) {
  for (Answer& answer : out.answers) {
    const Input& input = answer.decided.input;
    if (std::holds_alternative<Submit>(input) || std::holds_alternative<Cancel>(input) ||
        std::holds_alternative<AskCheckpoint>(input)) {
      const auto stored = state_.jobs.find(answer.job_id);
      const bool known = answer.job_id.empty() || stored != state_.jobs.end();
      if (known && !answer.stores) {
        // The input changed nothing, so its reply stays, with the job as it is stored.
        if (stored != state_.jobs.end()) {
          answer.reply.job = stored->second.job;
        }
        continue;
      }
      answer.reply = {.status = absl::ResourceExhaustedError(
                          absl::StrCat("the controller could not store the request, which has no effect: ",
                                       status.message(), "; make room on that file system and try again"))};
    } else if (std::holds_alternative<CheckpointNoticed>(input)) {
      HoldUntilRoom({std::move(answer.decided.input), std::exchange(answer.decided.done, nullptr)});
    }
  }
  outbox_.not_stored(std::exchange(out.events, {}));
}

void Engine::HoldUntilRoom(Decided noticed) {
  const auto& in = std::get<CheckpointNoticed>(noticed.input);
  std::map<NoticeKey, Decided>& held = held_[in.worker];
  held.insert_or_assign({in.notice.number(), KeyOf(in.notice.id())}, std::move(noticed));
  if (held.size() > kMostHeld) {
    // The worker has dropped the notice, too.
    if (const Decided oldest = std::move(held.extract(held.begin()).mapped()); oldest.done) {
      oldest.done({});
    }
  }
}

// Finds attempts that the store lacks. A worker would stop them as unwanted; but they go on, because the
// store may have lost their jobs, and no user has ended them.
void Engine::FindUnknown(WorkerHello& hello) {
  for (const v1::AttemptStatus& status : hello.hello.inventory().attempts()) {
    const AttemptKey key = KeyOf(status.id());
    if (status.ended() || status.has_refused() || IsLive(state_, key)) {
      continue;
    }
    const absl::StatusOr<std::optional<JobEntry>> row = store_.Row(key.job);
    if (row.ok() && row->has_value() && (*row)->job.attempt() >= key.attempt) {
      continue;
    }
    platform::Log(
        platform::LogLevel::kError,
        "a worker runs a job of which this store has nothing; it goes on, and ends with that worker "
        "or by itself",
        {{"worker", hello.hello.worker_id()}, {"job", key.job}, {"attempt", absl::StrCat(key.attempt)}});
    hello.unknown.insert(key);
  }
}

// Records a standstill if the batch took long: no message was read meanwhile, and no call answered.
void Engine::NoteStandstill(absl::Time began) {
  const absl::Time now = clock_.Now();
  if (now - began > state_.limits.worker_timeout / kStandstillPart) {
    platform::Log(platform::LogLevel::kWarning,
                  "nothing was decided for a while; the silence of workers counts from now on",
                  {{"seconds", absl::StrCat(absl::ToDoubleSeconds(now - began))}});
    state_.awake_since = std::max(state_.awake_since, now);
  }
}

void Engine::Halt(const absl::Status& status, BatchResult result) {
  failed_ = absl::UnavailableError(absl::StrCat("the controller's store has failed: ", status.message()));
  for (Answer& answer : result.answers) {
    if (answer.decided.done) {
      answer.decided.done({.status = failed_});
    }
  }
  for (const Queried& query : result.queries) {
    query.look(state_);
  }
  outbox_.fatal(status);
}

void Engine::Process(std::vector<Item> batch) {
  if (!failed_.ok()) {
    for (Item& item : batch) {
      if (auto* decided = std::get_if<Decided>(&item); decided != nullptr && decided->done) {
        decided->done({.status = failed_});
      } else if (auto* queried = std::get_if<Queried>(&item)) {
        queried->look(state_);
      }
    }
    return;
  }
  const absl::Time began = clock_.Now();
  BatchResult out;
  for (auto& [worker, held] : std::exchange(held_, {})) {
    for (auto& [key, noticed] : held) {
      Take(std::move(noticed), out);
    }
  }
  for (Item& item : batch) {
    Take(std::move(item), out);
  }
  absl::Status status = out.failed;
  if (status.ok()) {
    status = CommitOrUndo(out);
  }
  NoteStandstill(began);
  if (!status.ok()) {
    Halt(status, std::move(out));
    return;
  }
  Publish(std::move(out));
}

void Engine::Publish(BatchResult result) {
  std::vector<Answer>& answers = result.answers;
  for (const auto& [index, worker] : result.hellos) {
    answers[index].reply.assignments = *NextAssignments(worker, /*only_news=*/false);
    dirty_.erase(worker);
  }
  for (Answer& answer : answers) {
    if (answer.decided.done) {
      answer.decided.done(std::move(answer.reply));
    }
  }
  PushAssignments();
  for (const auto& [worker, value] : values_) {
    outbox_.value(worker, value);
  }
  values_.clear();
  for (const std::function<void()>& acknowledge : result.acknowledgements) {
    acknowledge();
  }
  for (const Queried& query : result.queries) {
    query.look(state_);
  }
  if (!result.events.empty()) {
    outbox_.events(result.events, state_);
    Prune(state_);
    rendezvous_.Retain(state_);
  }
}

void Engine::PushAssignments() {
  for (const std::string& worker : dirty_) {
    const auto it = state_.workers.find(worker);
    if (it == state_.workers.end() || !it->second.connected) {
      continue;
    }
    if (const std::optional<v1::Assignments> wanted = NextAssignments(worker, /*only_news=*/true)) {
      outbox_.assignments(worker, it->second.session, *wanted);
    }
  }
  dirty_.clear();
}

std::optional<v1::Assignments> Engine::NextAssignments(const std::string& worker, bool only_news) {
  v1::Assignments wanted = AssignmentsFor(state_, worker);
  v1::Assignments remembered = wanted;
  remembered.clear_forget();
  std::string bytes = remembered.SerializeAsString();
  if (only_news && wanted.forget().empty() && pushed_[worker] == bytes) {
    return std::nullopt;
  }
  pushed_[worker] = std::move(bytes);
  MarkForgotten(wanted, worker, state_);
  wanted.set_revision(++revision_);
  return wanted;
}

}  // namespace tandem::controller
