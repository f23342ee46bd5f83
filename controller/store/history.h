// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "controller/core/progress.h"
#include "controller/store/disk_lock.h"
#include "controller/store/journal.h"
#include "controller/store/norm_ring.h"
#include "controller/store/sqlite.h"
#include "tandem/v1/workers.pb.h"

namespace tandem::controller {

struct HistoryQueries;
struct HistoryStatements;

// The reports of every job, in DIR/history.db (synchronous NORMAL), keyed (job, step). Of the reports of a
// step, that of the highest attempt is kept. A report that is sent twice is stored once. Norms are kept in a
// ring (norm_ring.h). Thread-safe.
//
// Readers see a report as soon as it is added. While the writer waits for the disk, they see only the
// committed reports, over a connection of their own. Unavailable if the disk does not even read
// (disk_lock.h).
//
// The number of commits is in DIR/history.commits too (journal.h), because SQLite takes the first
// damaged frame of its log for the end of the log: after a flipped bit, or with the log removed, reports are
// missing without an error. Open logs how many commits are missing, and the history goes on without them.
//
// Open starts to check the whole file for damage. If that takes longer than check_patience, it goes on in the
// background. Once it has found damage, every call returns DataLoss, with what to do, and the workers keep
// the reports that are not durable yet.
class History {
 public:
  struct Options {
    int64_t norm_bytes_of_a_job = int64_t{64} << 20;
    int64_t norm_bytes = int64_t{1} << 30;
    int reports_per_commit = 256;
    absl::Duration commit_interval = absl::Seconds(1);
    absl::Duration check_patience = absl::Seconds(1);  // how long Open waits for the check; zero: not at all
  };
  // The position of a reader: it has all reports up to this one, in (attempt, step) order.
  struct Position {
    int attempt = 0;
    int64_t step = 0;
    auto operator<=>(const Position&) const = default;
  };
  // Attempts of a job have the same parameters and so the same table, unless two builds name parameters
  // differently.
  static constexpr int64_t kMostTablesOfAJob = 4;

  using Committed = std::function<void(absl::Status)>;

  // Opens or creates the history. DataLoss, with what to do, if damage is found within check_patience.
  static absl::StatusOr<std::unique_ptr<History>> Open(const std::string& directory, const Options& options);
  ~History();

  // Adds reports. Unavailable while the disk stands still. Requires that the digest of the table is correct
  // (proto/table_digest.h); the first kMostTablesOfAJob tables of a job are kept. `committed` is called with
  // OK when the reports are durable, or with the error after which they must be sent again; from the thread
  // that commits, with no lock held.
  absl::Status Add(const v1::ReportBatch& batch, absl::Time now, Committed committed)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Tick commits if commit_interval has passed or CommitSoon was called. Call it a few times a second, from a
  // thread that may wait for the disk.
  void CommitSoon() { due_ = true; }
  void Tick(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);
  void Commit() ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the reports after `position`, in (attempt, step) order.
  absl::StatusOr<std::vector<v1::StepReport>> After(const std::string& job, Position position, int limit,
                                                    bool norms) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<int64_t> CountAfter(const std::string& job, Position position) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the newest report after `position`; nullopt if there is none.
  absl::StatusOr<std::optional<v1::StepReport>> Newest(const std::string& job, Position position, bool norms)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the reports of the steps first to last (inclusive; last 0: no end), by step.
  absl::StatusOr<std::vector<v1::StepReport>> Range(const std::string& job, int64_t first, int64_t last,
                                                    int limit, bool norms) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns about `points` reports (> 1), evenly spread over the steps first to last, with the newest among
  // them. With `trim`, only steps that have norms count, and trim(norms) makes each report smaller before the
  // next one is read. The writer waits for one report at a time.
  using Trim = std::function<void(v1::Norms&)>;
  absl::StatusOr<std::vector<v1::StepReport>> Spread(const std::string& job, int64_t first, int64_t last,
                                                     int points, const Trim& trim = nullptr)
      ABSL_LOCKS_EXCLUDED(mu_);

  absl::StatusOr<std::optional<v1::ParameterTable>> Table(const std::string& digest) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the position of the newest report of a job; zeros if there is none.
  absl::StatusOr<Position> Last(const std::string& job) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the totals over the steps from 1 on that were reported to a controller that keeps totals (older
  // builds did not).
  absl::StatusOr<StepTotals> Totals(const std::string& job) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the highest step of a job whose report is committed; 0 if there is none. It never falls,
  // whichever process dies.
  absl::StatusOr<int64_t> LastStep(const std::string& job) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until the whole file has been read; false if that takes longer than `patience`.
  bool AwaitCheck(absl::Duration patience) const {
    return check_.wait_for(absl::ToChronoNanoseconds(patience)) == std::future_status::ready;
  }

  int64_t norm_bytes() const ABSL_LOCKS_EXCLUDED(mu_);

  // How many acknowledged commits were missing when the history was opened.
  int64_t lost_commits() const { return lost_commits_; }

  // FailedPrecondition if history.db was deleted, moved or replaced under this process.
  absl::Status CheckInPlace() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  History(std::unique_ptr<Database> db, const Options& options);

  static absl::StatusOr<std::unique_ptr<History>> OpenAt(const std::string& path, const Options& options);
  absl::Status Prepare() ABSL_LOCKS_EXCLUDED(mu_);
  // Reads the whole file in search of damage, on a thread of its own: 1 GiB takes a cold disk 20 s.
  absl::Status StartCheck(const std::string& path);
  void ReportDamage(const absl::Status& found) ABSL_LOCKS_EXCLUDED(mu_);
  // Drops the open transaction; returns the callbacks that must be called then.
  std::vector<Committed> RollBack() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Insert(const std::string& job, const v1::StepReport& report)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status InsertTable(const std::string& job, const v1::ParameterTable& table)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Compares the number of commits in the database and in the file, and goes on from the higher one.
  absl::Status CountCommits(const std::string& path) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status OpenReader(const std::string& path) ABSL_LOCKS_EXCLUDED(reader_mu_);
  absl::Status Damage() const ABSL_LOCKS_EXCLUDED(damage_mu_);
  // Returns what `read` finds: with the writer's queries or, while the disk holds up the writer, with the
  // reader's.
  template <typename Read>
  auto Look(const Read& read) ABSL_LOCKS_EXCLUDED(mu_, reader_mu_);
  // Returns what `read` finds in what is committed.
  template <typename Read>
  auto LookAtCommitted(const Read& read) ABSL_LOCKS_EXCLUDED(reader_mu_);
  // Ends the open transaction; returns the callbacks that must be called then, and their argument.
  std::pair<std::vector<Committed>, absl::Status> End() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the first report of these steps; with `norms`, the first that has norms.
  absl::StatusOr<std::optional<v1::StepReport>> First(const std::string& job, int64_t first, int64_t last,
                                                      bool norms) ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  mutable DiskLock mu_;
  std::unique_ptr<Database> db_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<HistoryStatements> statements_ ABSL_GUARDED_BY(mu_);
  std::optional<NormRing> norms_ ABSL_GUARDED_BY(mu_);
  bool open_ ABSL_GUARDED_BY(mu_) = false;  // a transaction
  int uncommitted_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time first_uncommitted_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> due_ = false;
  std::vector<Committed> waiting_ ABSL_GUARDED_BY(mu_);
  CommitCount commits_ ABSL_GUARDED_BY(mu_);
  int64_t lost_commits_ = 0;
  std::unique_ptr<HistoryQueries> latest_ ABSL_GUARDED_BY(mu_);
  DiskLock reader_mu_;
  std::unique_ptr<Database> reader_ ABSL_GUARDED_BY(reader_mu_);
  std::unique_ptr<HistoryQueries> committed_ ABSL_GUARDED_BY(reader_mu_);
  mutable absl::Mutex damage_mu_;
  absl::Status damage_ ABSL_GUARDED_BY(damage_mu_);  // found by the check
  std::unique_ptr<Database> checked_;  // used by the check's thread; by others only for Interrupt
  std::atomic<bool> closing_ = false;
  std::future<void> check_;
};

// Sets job.last_step to the newest committed report's step, if that is higher. (Reports bypass the state
// machine, so a job's row is updated only at the next event.) If the history is damaged, leaves the step as
// it is.
absl::Status FillLastStep(History& history, v1::Job& job);

}  // namespace tandem::controller
