// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "controller/core/decide.h"
#include "controller/core/rendezvous.h"
#include "controller/store/store.h"
#include "platform/clock.h"

namespace tandem::controller {

// The one writer: takes inputs in order, a batch at a time; decides; commits the batch in one transaction;
// and only then publishes what follows from it: replies, assignments, values, events. Thread-safe.
//
// An input is judged as of the time at which it was posted, when all that was posted before it was known and
// nothing after it: a worker that returned while a commit took a minute was never away for a minute. Time in
// which nothing could be posted, because the engine stood still, does not count as silence
// (State.awake_since).
class Engine {
 public:
  struct Reply {
    absl::Status status;
    v1::Job job;                  // of Submit, Cancel and AskCheckpoint
    v1::Assignments assignments;  // of WorkerHello: all that is wanted there
  };
  // Called from the writer's thread; all but `reported` after the commit. None may block. What is not set is
  // ignored, but for `fatal`.
  struct Outbox {
    // A worker has reported on an attempt, or has listed it as it returned. The state has the report and what
    // was decided then, of which a commit without room may undo the decisions, but never the report.
    std::function<void(const State&, const AttemptKey&)> reported = [](const auto&...) {};
    std::function<void(const std::string& worker, const std::string& session, const v1::Assignments&)>
        assignments = [](const auto&...) {};
    std::function<void(const std::string& worker, const v1::KvValue&)> value = [](const auto&...) {};
    // The state still has the jobs that these events ended.
    std::function<void(const std::vector<v1::Event>&, const State&)> events = [](const auto&...) {};
    std::function<void(double seconds)> commit_seconds = [](const auto&...) {};
    // There was no room for a commit. What it held was undone, and is decided again when there is room; the
    // users who asked for it were refused with the reason. Called again with every try that fails.
    std::function<void(const absl::Status&)> no_room = [](const auto&...) {};
    std::function<void()> room_again = [](const auto&...) {};
    // Events for which there was no room. Those of workers that left or were lost are not decided again.
    std::function<void(const std::vector<v1::Event>&)> not_stored = [](const auto&...) {};
    // The store failed: nothing more is decided, and every waiting call has got the reason. The process
    // should end and be started again.
    std::function<void(const absl::Status&)> fatal;
  };

  // Notices of one worker that wait for room in the store, as many as it keeps itself.
  static constexpr size_t kMostHeld = 1000;

  // `store` and `clock` outlive the engine. `state` is what the store loaded.
  Engine(Store& store, const platform::Clock& clock, State state, Outbox outbox);
  ~Engine();

  void Start();

  // Reports that the store was found to have failed, as if its next commit had.
  void Fail(absl::Status status) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns ResourceExhausted from a commit for which there was no room until there is room for most commits,
  // otherwise OK. Store::CheckRoom tries that, since a small commit may succeed before, or none may come.
  absl::Status StoreRoom() const ABSL_LOCKS_EXCLUDED(mu_);

  // Processes what was posted before, then ends the thread. Later posts are answered with Unavailable.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  // `done` is called from the writer's thread when the consequences are durable.
  void Post(Input input, std::function<void(Reply)> done = nullptr) ABSL_LOCKS_EXCLUDED(mu_);
  void Set(std::string worker, v1::KvSet set, std::function<void(const absl::Status&)> done)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Get(std::string worker, v1::KvGet get, std::function<void(const absl::Status&)> done)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Runs `look` on the writer's thread, on a durable state. Returns false if the engine has stopped.
  bool Query(std::function<void(const State&)> look) ABSL_LOCKS_EXCLUDED(mu_);

  // Does the same, and waits for it.
  bool Look(const std::function<void(const State&)>& look) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Decided {
    Input input;
    std::function<void(Reply)> done;
    absl::Time posted = absl::InfinitePast();  // set when it enters the queue
  };
  struct KeyCall {
    std::function<absl::Status()> act;
    std::function<void(const absl::Status&)> done;
  };
  struct Queried {
    std::function<void(const State&)> look;
  };
  struct Failed {
    absl::Status status;
  };
  using NoticeKey = std::pair<uint64_t, AttemptKey>;  // its number, which rises
  using Item = std::variant<Decided, KeyCall, Queried, Failed>;
  struct Answer {
    Decided decided;
    Reply reply;
    std::string job_id;   // of the reply; empty if it is about none, or about one that ended long ago
    bool stores = false;  // it is true only once the batch is committed
  };
  // What a batch of items led to, and which calls wait for its commit.
  struct BatchResult {
    std::vector<v1::Event> events;
    std::vector<Answer> answers;
    std::vector<std::pair<size_t, std::string>> hellos;   // index in answers, worker
    std::vector<std::function<void()>> acknowledgements;  // of keys
    std::vector<Queried> queries;
    absl::Status failed;
  };

  bool Enqueue(Item item) ABSL_LOCKS_EXCLUDED(mu_);
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void Process(std::vector<Item> batch);
  void Take(Item item, BatchResult& out);
  void Take(Decided decided, BatchResult& out);
  void FindUnknown(WorkerHello& hello);
  void NoteStandstill(absl::Time began);
  Decision Decide(const Input& input, absl::Time now, Reply& reply);
  absl::Status SetKey(const std::string& worker, const v1::KvSet& set);
  absl::Status GetKey(const std::string& worker, const v1::KvGet& get);
  absl::Status Commit(const std::vector<v1::Event>& events);
  absl::Status CommitOrUndo(BatchResult& out) ABSL_LOCKS_EXCLUDED(mu_);
  void SetRoom(const absl::Status& room) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Undo(const std::vector<v1::Event>& events);
  void Refuse(const absl::Status& status, BatchResult& out);
  void HoldUntilRoom(Decided noticed);
  void Publish(BatchResult result);
  void Halt(const absl::Status& status, BatchResult result);
  void PushAssignments();
  // What is wanted of a worker, as the next revision; nullopt if `only_news` and that is what it was sent
  // last.
  std::optional<v1::Assignments> NextAssignments(const std::string& worker, bool only_news);

  Store& store_;
  const platform::Clock& clock_;
  const Outbox outbox_;

  // Used by the writer's thread alone.
  State state_;
  Rendezvous rendezvous_;
  std::map<std::string, std::string> pushed_;  // worker → what it was sent last
  std::set<std::string> dirty_;                // workers whose assignments may have changed
  std::vector<std::pair<std::string, v1::KvValue>> values_;
  int64_t revision_ = 0;
  // Notices that there was no room for, by worker: their workers send them once in a connection. The one that
  // came last of each.
  std::map<std::string, std::map<NoticeKey, Decided>> held_;
  absl::Time looked_at_;  // for room in the store, by a commit or a try
  absl::Status failed_;   // why nothing is decided any more

  mutable absl::Mutex mu_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mu_);
  absl::Status room_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace tandem::controller
