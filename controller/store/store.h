// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "controller/core/state.h"
#include "controller/store/disk_lock.h"
#include "controller/store/journal.h"
#include "controller/store/sqlite.h"
#include "platform/random.h"

namespace tandem::controller {

// The controller keeps two databases in --state: Store (controller.db), for whose commit every decision
// waits, and History (history.db, history.h) with the reports of steps, committed once a second. Each has a
// connection that writes and one that reads (Database and Statement, sqlite.h), behind a DiskLock. SQLite
// does not notice that it lost its last commits: Journal (of Store) and CommitCount (of History) do.

// The durable state of the controller: the log of events, a row per job, request ids, the store's id and term
// (SQLite in DIR/controller.db; write-ahead log, synchronous FULL). Thread-safe. Find, Lookup, List and
// Events are for RPCs: they use a connection of their own, see the last commit, and never wait for a commit
// that is in progress. They return Unavailable if the disk does not even read (disk_lock.h). The other calls
// wait for the disk.
class Store {
 public:
  // Opens or creates the store, and begins the next term. FailedPrecondition, in one line, if another
  // controller has it open, or if it has a schema or a kind of event that this build does not know; DataLoss
  // if a part of it is damaged (all of it is read), or if committed events are missing and the journal
  // (journal.h) does not have them; PermissionDenied if it cannot be written.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& directory, platform::Random& random);
  ~Store();

  const std::string& store_id() const { return store_id_; }
  int64_t term() const { return term_; }

  // Returns the live jobs and last_seq. Restores events that the database has lost from the journal. Call
  // once, before the first commit.
  absl::StatusOr<State> Load() ABSL_LOCKS_EXCLUDED(mu_);

  // Commits the events, and the rows as they are after them, in one transaction. After ResourceExhausted
  // nothing has changed, and the commit may be tried again; after any other error nothing more may be
  // committed.
  absl::Status Commit(const std::vector<v1::Event>& events, const std::vector<const JobEntry*>& rows)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Moves what was committed to the main file, unless something was committed since the last call. Call once
  // a second, from a thread that may wait for the disk. Errors are those of Commit.
  absl::Status TidyIfQuiet() ABSL_LOCKS_EXCLUDED(mu_);

  // Tests for room: commits a meaningless row that is larger than most commits. Errors are those of Commit.
  absl::Status CheckRoom() ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the row of the job of that id as it was last committed; nullopt if there is none.
  absl::StatusOr<std::optional<JobEntry>> Row(const std::string& id) ABSL_LOCKS_EXCLUDED(mu_);

  // FailedPrecondition if the state directory was deleted, moved or replaced under this process.
  absl::Status CheckInPlace() const ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the job of that id, or else the live job of that name, or else the newest ended job of that name.
  absl::StatusOr<std::optional<v1::Job>> Find(const std::string& id_or_name) ABSL_LOCKS_EXCLUDED(reader_mu_);
  // Returns the job that a user means: as Find, or else the job whose id begins with `text`, which must have
  // at least four characters. NotFound, or InvalidArgument if several ids begin so; both say what to do.
  absl::StatusOr<v1::Job> Lookup(const std::string& text) ABSL_LOCKS_EXCLUDED(reader_mu_);
  absl::StatusOr<std::optional<v1::Job>> FindRequest(const std::string& owner, const std::string& request_id)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the jobs submitted before `before` (a submitted_seq; 0: all), newest first, each with its
  // submitted_seq.
  absl::StatusOr<std::vector<std::pair<int64_t, v1::Job>>> List(int64_t before, int limit,
                                                                const std::set<v1::JobState>& states)
      ABSL_LOCKS_EXCLUDED(reader_mu_);

  // Returns the events after `seq`, oldest first: of one job, or of all jobs and workers if `job_id` is
  // empty.
  absl::StatusOr<std::vector<v1::Event>> Events(const std::string& job_id, int64_t seq, int limit)
      ABSL_LOCKS_EXCLUDED(reader_mu_);
  int64_t LastSeq() const { return last_seq_; }

 private:
  Store(std::unique_ptr<Database> db, const std::string& directory);
  struct Statements;  // of the connection that writes
  struct Queries;     // of the connection that reads for RPCs

  static absl::StatusOr<std::unique_ptr<Store>> OpenIn(const std::string& directory,
                                                       platform::Random& random);
  absl::StatusOr<State> ReadState() ABSL_LOCKS_EXCLUDED(mu_);
  // Reads the journal of a former controller into former_. DataLoss if the database lacks events that the
  // journal lacks too.
  absl::Status CheckComplete() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Commits the events of the journal that the database lacks.
  absl::Status Replay(State& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Moves the log to the main file, begins a new journal and sets tidy_; does nothing if a reader was using
  // the log.
  absl::Status Tidy() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CommitNow(const std::vector<v1::Event>& events, const std::vector<const JobEntry*>& rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Prepare(platform::Random& random) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status OpenReader() ABSL_LOCKS_EXCLUDED(reader_mu_);
  absl::Status Begin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Commits the transaction if `written`, the status of its writes, is OK; otherwise rolls it back.
  absl::Status End(absl::Status written) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Write(const std::vector<v1::Event>& events, const std::vector<const JobEntry*>& rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string path_;
  mutable DiskLock mu_;
  std::unique_ptr<Database> db_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Statements> statements_ ABSL_GUARDED_BY(mu_);
  DiskLock reader_mu_;
  std::unique_ptr<Database> reader_ ABSL_GUARDED_BY(reader_mu_);
  std::unique_ptr<Queries> queries_ ABSL_GUARDED_BY(reader_mu_);
  std::atomic<int64_t> last_seq_ = 0;  // of the last commit
  std::string store_id_;
  int64_t term_ = 0;
  Journal journal_ ABSL_GUARDED_BY(mu_);
  std::optional<Journal::Content> former_ ABSL_GUARDED_BY(mu_);  // until Load
  bool tidy_ ABSL_GUARDED_BY(mu_) = true;                        // the log is empty and the journal has begun
  bool quiet_ ABSL_GUARDED_BY(mu_) = true;  // nothing was committed since the last TidyIfQuiet
};

}  // namespace tandem::controller
