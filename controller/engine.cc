#include "controller/engine.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "controller/assignments.h"
#include "platform/failpoint.h"
#include "platform/log.h"

namespace tandem::controller {
namespace {

constexpr size_t kBatch = 256;

// The name of an event in failpoints: "controller.before_commit.submit".
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
  state_.started = clock_.Now();
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
  queue_.push_back(std::move(item));
  return true;
}

void Engine::Post(Input input, std::function<void(Reply)> done) {
  if (!Enqueue(Decided{std::move(input), done}) && done) {
    done({.status = absl::UnavailableError("the controller is shutting down")});
  }
}

void Engine::Set(v1::KvSet set, std::function<void()> done) {
  Enqueue(KeySet{std::move(set), std::move(done)});
}

void Engine::Get(std::string worker, v1::KvGet get, std::function<void()> done) {
  Enqueue(KeyGet{std::move(worker), std::move(get), std::move(done)});
}

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
    // A job that has ended is in the store alone, and answers for its request id for ever.
    const absl::StatusOr<std::optional<v1::Job>> ended =
        store_.FindRequest(submit->owner, submit->request_id);
    if (!ended.ok()) {
      reply.status = ended.status();
      return {};
    }
    if (ended->has_value() && state_.jobs.count((*ended)->id()) == 0) {
      reply.job = **ended;
      if (reply.job.submitted().SerializeAsString() != submit->submitted.SerializeAsString()) {
        reply.status = absl::AlreadyExistsError(
            absl::StrCat("request_id ", submit->request_id, " belongs to job ", reply.job.id(),
                         ", which has another spec; use another request_id for another job"));
      }
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

void Engine::SetKey(const v1::KvSet& set) {
  if (!IsLive(state_, KeyOf(set.id()))) {
    return;  // of an older attempt: fenced
  }
  Rendezvous::Answer answer;
  if (!rendezvous_.Set(set, answer)) {
    platform::Log(platform::LogLevel::kWarning, "a rendezvous key was set twice; the first value stays",
                  {{"job", set.id().job_id()}, {"key", set.key()}, {"rank", absl::StrCat(set.rank())}});
  }
  for (const std::string& worker : answer.workers) {
    values_.emplace_back(worker, answer.value);
  }
}

void Engine::Process(std::vector<Item> batch) {
  std::vector<v1::Event> events;
  std::vector<std::function<void()>> after;  // the commit
  std::vector<std::pair<std::function<void(Reply)>, Reply>> replies;
  std::vector<std::pair<size_t, std::string>> hellos;  // index in replies, worker
  if (failed_) {
    for (Item& item : batch) {
      if (auto* decided = std::get_if<Decided>(&item); decided != nullptr && decided->done) {
        decided->done({.status = absl::UnavailableError("the controller's store has failed")});
      } else if (auto* queried = std::get_if<Queried>(&item)) {
        queried->look(state_);
      }
    }
    return;
  }
  for (Item& item : batch) {
    if (auto* decided = std::get_if<Decided>(&item)) {
      Reply reply;
      Decision decision = Decide(decided->input, clock_.Now(), reply);
      if (const auto* hello = std::get_if<WorkerHello>(&decided->input)) {
        for (const v1::AttemptStatus& attempt : hello->hello.inventory().attempts()) {
          for (v1::KvSet set : attempt.values()) {
            *set.mutable_id() = attempt.id();
            SetKey(set);
          }
        }
        hellos.emplace_back(replies.size(), hello->hello.worker_id());
      } else if (const auto* report = std::get_if<AttemptReport>(&decided->input)) {
        dirty_.insert(report->worker);
      } else if (const auto* gone = std::get_if<WorkerDisconnected>(&decided->input)) {
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
        events.push_back(std::move(event));
      }
      replies.emplace_back(std::move(decided->done), std::move(reply));
    } else if (auto* set = std::get_if<KeySet>(&item)) {
      SetKey(set->set);
      after.push_back(std::move(set->done));
    } else if (auto* get = std::get_if<KeyGet>(&item)) {
      v1::KvValue value;
      if (IsLive(state_, KeyOf(get->get.id())) && rendezvous_.Get(get->get, get->worker, value)) {
        values_.emplace_back(get->worker, std::move(value));
      }
      after.push_back(std::move(get->done));
    } else if (auto* queried = std::get_if<Queried>(&item)) {
      after.push_back([this, look = std::move(queried->look)] { look(state_); });
    }
  }
  if (!events.empty()) {
    std::map<std::string, const JobEntry*> rows;
    for (const v1::Event& event : events) {
      const auto it = state_.jobs.find(event.job_id());
      if (it != state_.jobs.end()) {
        rows[event.job_id()] = &it->second;
      }
    }
    std::vector<const JobEntry*> changed;
    for (const auto& [id, row] : rows) {
      changed.push_back(row);
    }
    HitFailpoints("before", events);
    const auto start = std::chrono::steady_clock::now();
    const absl::Status status = store_.Commit(events, changed);
    if (!status.ok()) {
      failed_ = true;
      outbox_.fatal(status);
      for (auto& [done, reply] : replies) {
        if (done) {
          done({.status = absl::UnavailableError(
                    absl::StrCat("the controller's store has failed: ", status.message()))});
        }
      }
      return;
    }
    outbox_.commit_seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    HitFailpoints("after", events);
  }
  for (const auto& [index, worker] : hellos) {
    v1::Assignments wanted = WantedOn(state_, worker);
    MarkForgotten(wanted, worker, state_);
    v1::Assignments remembered = wanted;
    remembered.clear_forget();
    pushed_[worker] = remembered.SerializeAsString();
    wanted.set_revision(++revision_);
    replies[index].second.assignments = std::move(wanted);
    dirty_.erase(worker);
  }
  for (auto& [done, reply] : replies) {
    if (done) {
      done(std::move(reply));
    }
  }
  PushAssignments();
  for (const auto& [worker, value] : values_) {
    outbox_.value(worker, value);
  }
  values_.clear();
  for (const std::function<void()>& call : after) {
    if (call) {
      call();
    }
  }
  if (!events.empty()) {
    Prune(state_);
    rendezvous_.Retain(state_);
    outbox_.events(events);
  }
}

void Engine::PushAssignments() {
  for (const std::string& worker : dirty_) {
    const auto it = state_.workers.find(worker);
    if (it == state_.workers.end() || !it->second.connected) {
      continue;
    }
    v1::Assignments wanted = WantedOn(state_, worker);
    v1::Assignments remembered = wanted;
    remembered.clear_forget();
    std::string bytes = remembered.SerializeAsString();
    if (wanted.forget().empty() && pushed_[worker] == bytes) {
      continue;
    }
    pushed_[worker] = std::move(bytes);
    MarkForgotten(wanted, worker, state_);
    wanted.set_revision(++revision_);
    outbox_.assignments(worker, it->second.session, wanted);
  }
  dirty_.clear();
}

}  // namespace tandem::controller
