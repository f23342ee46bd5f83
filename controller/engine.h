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

// The only writer of the state. Its thread takes inputs in order, a batch at a time, decides them, commits
// the batch in one transaction, and only then publishes what follows: replies, assignments, values, events.
// Thread-safe.
//
// An input is decided as of the time at which it was posted, so a worker that reconnected while a commit took
// a minute was never away for a minute. Time in which the engine stood still does not count as silence of the
// workers (State.awake_since).
class Engine {
 public:
  struct Reply {
    absl::Status status;
    v1::Job job;                  // of Submit, Cancel and AskCheckpoint
    v1::Assignments assignments;  // of WorkerHello: all assignments of the worker
  };
  // Called from the writer's thread, all but `reported` after the commit. None may block. All but `fatal` may
  // be left unset.
  struct Outbox {
    // A worker has reported on an attempt, or has listed it in a Hello. The state has the report and the
    // decisions that followed from it. If there is no room to commit them, the decisions are undone and the
    // report stays.
    std::function<void(const State&, const AttemptKey&)> reported = [](const auto&...) {};
    std::function<void(const std::string& worker, const std::string& session, const v1::Assignments&)>
        assignments = [](const auto&...) {};
    std::function<void(const std::string& worker, const v1::KvValue&)> value = [](const auto&...) {};
    // The state still has the jobs that these events ended.
    std::function<void(const std::vector<v1::Event>&, const State&)> events = [](const auto&...) {};
    std::function<void(double seconds)> commit_seconds = [](const auto&...) {};
    // There was no room for a commit. Its decisions were undone, and are made again when there is room; users
    // whose calls had led to them were refused with the reason. Called again after every try that fails.
    std::function<void(const absl::Status&)> no_room = [](const auto&...) {};
    std::function<void()> room_again = [](const auto&...) {};
    // The events for which there was no room. Events of workers that connected, left or were lost are not
    // decided again.
    std::function<void(const std::vector<v1::Event>&)> not_stored = [](const auto&...) {};
    // The store failed: nothing more is decided, and every waiting call was answered with the reason. The
    // process should end and be started again.
    std::function<void(const absl::Status&)> fatal;
  };

  // The most notices of one worker that are kept while the store has no room; the worker keeps as many.
  static constexpr size_t kMostHeld = 1000;

  // `store` and `clock` must outlive the engine. `state` is what the store has loaded.
  Engine(Store& store, const platform::Clock& clock, State state, Outbox outbox);
  ~Engine();

  void Start();

  // Halts the engine as if its next commit had failed with `status`, because the store is found to be
  // unusable.
  void Fail(absl::Status status) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns ResourceExhausted after a commit found no room, until there is room for most commits again;
  // otherwise OK. The engine asks Store::CheckRoom, because a small commit may succeed earlier, or no commit
  // may be due.
  absl::Status StoreRoom() const ABSL_LOCKS_EXCLUDED(mu_);

  // Processes what was posted before, then ends the thread. A later Post is answered with Unavailable.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  // Posts an input, or a call of the rendezvous. `done` is called from the writer's thread when the
  // consequences are durable.
  void Post(Input input, std::function<void(Reply)> done = nullptr) ABSL_LOCKS_EXCLUDED(mu_);
  void Set(std::string worker, v1::KvSet set, std::function<void(const absl::Status&)> done)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Get(std::string worker, v1::KvGet get, std::function<void(const absl::Status&)> done)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Posts `look`, which is called on the writer's thread with a durable state. Returns false if the engine
  // has stopped.
  bool Query(std::function<void(const State&)> look) ABSL_LOCKS_EXCLUDED(mu_);

  // As Query, but returns when `look` has been called.
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
    std::string job_id;   // of the reply's job; empty if there is none, or if it ended long ago
    bool stores = false;  // the reply is true only once the batch is committed
  };
  // The consequences of a batch of items, and the calls that wait for its commit.
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
  // Returns the assignments of a worker, with the next revision; nullopt if `only_news` and they equal those
  // that it was sent last.
  std::optional<v1::Assignments> NextAssignments(const std::string& worker, bool only_news);

  Store& store_;
  const platform::Clock& clock_;
  const Outbox outbox_;

  // Used by the writer's thread alone.
  State state_;
  Rendezvous rendezvous_;
  std::map<std::string, std::string> pushed_;  // worker → the assignments that it was sent last
  std::set<std::string> dirty_;                // workers whose assignments may have changed
  std::vector<std::pair<std::string, v1::KvValue>> values_;
  int64_t revision_ = 0;
  // By worker: notices that wait for room in the store. They are kept here because a worker sends each only
  // once in a connection. Of a notice that came again, the last copy.
  std::map<std::string, std::map<NoticeKey, Decided>> held_;
  absl::Time looked_at_;  // when a commit or a try last tested for room in the store
  absl::Status failed_;   // not OK: nothing is decided any more, for this reason

  mutable absl::Mutex mu_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mu_);
  absl::Status room_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace tandem::controller
