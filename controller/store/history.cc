// SPDX-License-Identifier: Apache-2.0
#include "controller/store/history.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "controller/store/history_tables.h"
#include "controller/store/sqlite.h"
#include "platform/failpoint.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace tandem::controller {
namespace {

// How long a reader waits for the writer before it reads what is committed.
constexpr absl::Duration kGlance = absl::Milliseconds(100);

// Only reports are lost with the file.
constexpr char kOfDamage[] = "move it away to go on without the old reports";

}  // namespace

template <typename Read>
auto History::LookAtCommitted(const Read& read) {
  using Answer = decltype(read(std::declval<HistoryQueries&>()));
  const DiskTurn turn(reader_mu_, DiskLock::kPatience);
  if (!turn.held()) {
    return Answer(turn.status());
  }
  const absl::Status damage = Damage();
  return damage.ok() ? read(*committed_) : Answer(damage);
}

template <typename Read>
auto History::Look(const Read& read) {
  using Answer = decltype(read(std::declval<HistoryQueries&>()));
  {
    const DiskTurn turn(mu_, kGlance);
    if (turn.held()) {
      const absl::Status damage = Damage();
      return damage.ok() ? read(*latest_) : Answer(damage);
    }
  }
  return LookAtCommitted(read);
}

History::History(std::unique_ptr<Database> db, const Options& options)
    : options_(options), db_(std::move(db)) {}

History::~History() {
  closing_ = true;
  // An interrupt that comes before the check has begun has no effect, so it is repeated.
  while (check_.valid() && !AwaitCheck(absl::Milliseconds(10))) {
    checked_->Interrupt();
  }
  Commit();
}

absl::StatusOr<std::unique_ptr<History>> History::OpenAt(const std::string& path, const Options& options) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Database> db, Database::Open(path, Database::Sync::kNormal));
  std::unique_ptr<History> out(new History(std::move(db), options));
  TANDEM_RETURN_IF_ERROR(out->Prepare());
  TANDEM_RETURN_IF_ERROR(out->CountCommits(path));
  TANDEM_RETURN_IF_ERROR(out->OpenReader(path));
  TANDEM_RETURN_IF_ERROR(out->StartCheck(path));
  return out;
}

absl::StatusOr<std::unique_ptr<History>> History::Open(const std::string& directory, const Options& options) {
  absl::StatusOr<std::unique_ptr<History>> out = OpenAt(absl::StrCat(directory, "/history.db"), options);
  if (!out.ok()) {
    return WithRemedy(out.status(), kOfDamage);
  }
  if (options.check_patience > absl::ZeroDuration() && (*out)->AwaitCheck(options.check_patience)) {
    TANDEM_RETURN_IF_ERROR((*out)->Damage());
  }
  return out;
}

absl::Status History::CountCommits(const std::string& path) {
  const std::string file = std::filesystem::path(path).replace_extension(".commits").string();
  const DiskTurn turn(mu_);
  Statement get = db_->Prepare("SELECT coalesce(max(count), 0) FROM commits");
  TANDEM_ASSIGN_OR_RETURN(const int64_t here, ReadNumber(get));
  const absl::StatusOr<std::optional<int64_t>> read = CommitCount::Read(file);
  if (!read.ok() && !absl::IsDataLoss(read.status())) {
    return read.status();
  }
  if (!read.ok()) {
    platform::Log(platform::LogLevel::kWarning, "it is not known whether the history has lost reports",
                  {{"error", std::string(read.status().message())}});
  }
  const int64_t noted = read.ok() ? read->value_or(0) : 0;
  if (noted > here) {
    lost_commits_ = noted - here;
    platform::Log(platform::LogLevel::kError,
                  "the last commits of reports are missing: the history or its log was damaged, removed or "
                  "replaced, or the machine stopped before they were on the disk; `metrics` lacks these "
                  "steps, metrics.jsonl beside a job's checkpoints has them",
                  {{"history", path}, {"lost", absl::StrCat(lost_commits_)}, {"of", absl::StrCat(noted)}});
    TANDEM_RETURN_IF_ERROR(statements_->put_commits.Run(noted));  // once for each damage
  }
  TANDEM_RETURN_IF_ERROR(commits_.Open(file));
  return commits_.Write(std::max(here, noted));
}

absl::Status History::OpenReader(const std::string& path) {
  const DiskTurn turn(reader_mu_);
  TANDEM_ASSIGN_OR_RETURN(reader_, Database::OpenReader(path));
  committed_ = std::make_unique<HistoryQueries>(*reader_);
  return absl::OkStatus();
}

absl::Status History::Damage() const {
  const absl::MutexLock lock(&damage_mu_);
  return damage_;
}

absl::Status History::StartCheck(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(checked_, Database::OpenReader(path));
  check_ = std::async(std::launch::async, [this] {
    if (const absl::Status found = checked_->Check(); !found.ok() && !closing_) {
      ReportDamage(found);
    }
  });
  return absl::OkStatus();
}

void History::ReportDamage(const absl::Status& found) {
  const absl::Status damage = WithRemedy(found, kOfDamage);
  {
    const absl::MutexLock lock(&damage_mu_);
    damage_ = damage;
  }
  std::vector<Committed> waiting;
  {
    const DiskTurn turn(mu_);
    waiting = RollBack();
  }
  platform::Log(platform::LogLevel::kError, "the reports cannot be read, and no more are taken",
                {{"error", std::string(damage.message())}});
  for (const Committed& call : waiting) {
    call(damage);
  }
}

std::vector<History::Committed> History::RollBack() {
  if (open_) {
    db_->Execute("ROLLBACK").IgnoreError();
  }
  open_ = false;
  uncommitted_ = 0;
  return std::exchange(waiting_, {});
}

absl::Status History::Prepare() {
  const DiskTurn turn(mu_);
  Statement version = db_->Prepare("PRAGMA user_version");
  TANDEM_ASSIGN_OR_RETURN(const int64_t schema, ReadNumber(version));
  if (schema != 0 && schema != kHistorySchema) {
    return absl::FailedPreconditionError(
        absl::StrCat("history.db: schema ", schema, " is not known to this build (it knows ", kHistorySchema,
                     "); run the build that wrote it, or a newer one"));
  }
  TANDEM_RETURN_IF_ERROR(
      db_->Execute(absl::StrCat(kHistoryTables, "PRAGMA user_version = ", kHistorySchema)));
  statements_ = std::make_unique<HistoryStatements>(*db_);
  latest_ = std::make_unique<HistoryQueries>(*db_);
  norms_.emplace(*db_, options_.norm_bytes_of_a_job, options_.norm_bytes);
  return norms_->Count();
}

absl::Status History::Insert(const std::string& job, const v1::StepReport& report) {
  v1::StepReport scalars = report;
  scalars.clear_norms();
  TANDEM_RETURN_IF_ERROR(
      statements_->insert.Run(job, report.step(), report.attempt(), Blob{scalars.SerializeAsString()}));
  if (report.step() > 0) {  // 0 is the validation before the first
    // The time comes from a worker: if no step can have taken so long, it counts as 0.
    const bool is_time = report.seconds() >= 0 && report.seconds() < 1e9;
    const int64_t microseconds = is_time ? std::llround(report.seconds() * 1e6) : 0;
    TANDEM_RETURN_IF_ERROR(statements_->add_to_totals.Run(job, report.step(), microseconds));
  }
  return report.has_norms() ? norms_->Insert(job, report) : absl::OkStatus();
}

absl::Status History::InsertTable(const std::string& job, const v1::ParameterTable& table) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t others,
                          ReadNumber(statements_->count_other_tables.Bind(job, table.digest())));
  if (others >= kMostTablesOfAJob) {
    return absl::OkStatus();  // the job's norms then have no names
  }
  TANDEM_RETURN_IF_ERROR(statements_->insert_table_of_job.Run(job, table.digest()));
  return statements_->insert_table.Run(table.digest(), Blob{table.SerializeAsString()});
}

absl::Status History::Add(const v1::ReportBatch& batch, absl::Time now, Committed committed) {
  std::pair<std::vector<Committed>, absl::Status> ended;
  {
    const DiskTurn turn(mu_, DiskLock::kPatience);
    if (!turn.status().ok()) {
      committed(turn.status());
      return turn.status();
    }
    const absl::Status damage = Damage();
    absl::Status status = damage;
    if (status.ok() && !open_) {
      status = db_->Execute("BEGIN");
      open_ = status.ok();
      first_uncommitted_ = now;
    }
    if (status.ok() && batch.has_table()) {
      status = InsertTable(batch.id().job_id(), batch.table());
    }
    for (const v1::StepReport& report : batch.reports()) {
      if (!status.ok()) {
        break;
      }
      v1::StepReport stamped = report;
      if (stamped.attempt() == 0) {
        stamped.set_attempt(batch.id().attempt());
      }
      status = Insert(batch.id().job_id(), stamped);
      ++uncommitted_;
    }
    if (!damage.ok()) {
      ended.second = damage;  // it has been logged
      ended.first.push_back(std::move(committed));
    } else if (!status.ok()) {
      platform::Log(platform::LogLevel::kError, "reports could not be stored; the workers send them again",
                    {{"error", std::string(status.message())}});
      // The other reports of the transaction are sent again, too, because their callers get the error.
      ended = {RollBack(), status};
      norms_->Count().IgnoreError();
      ended.first.push_back(std::move(committed));
    } else {
      waiting_.push_back(std::move(committed));
      if (uncommitted_ >= options_.reports_per_commit) {
        CommitSoon();
      }
    }
  }
  for (const Committed& call : ended.first) {
    call(ended.second);
  }
  return ended.second;
}

std::pair<std::vector<History::Committed>, absl::Status> History::End() {
  if (!open_) {
    return {};
  }
  TANDEM_FAILPOINT("controller.before_commit.report");
  const int64_t number = commits_.count() + 1;
  absl::Status status = db_->CheckInPlace();
  if (status.ok()) {
    status = statements_->put_commits.Run(number);
  }
  if (status.ok()) {
    status = db_->Execute("COMMIT");
  }
  if (status.ok()) {
    TANDEM_FAILPOINT("controller.after_commit.report");
  } else {
    platform::Log(platform::LogLevel::kError, "reports could not be committed; the workers send them again",
                  {{"error", std::string(status.message())}});
    std::vector<Committed> waiting = RollBack();
    norms_->Count().IgnoreError();
    return {std::move(waiting), status};
  }
  if (const absl::Status noted = commits_.Write(number); !noted.ok()) {
    platform::Log(platform::LogLevel::kWarning, "the number of commits of the history cannot be written",
                  {{"error", std::string(noted.message())}});
  }
  open_ = false;
  uncommitted_ = 0;
  return {std::exchange(waiting_, {}), status};
}

void History::Tick(absl::Time now) {
  bool due = false;
  {
    const DiskTurn turn(mu_);
    due = due_.exchange(false) || (open_ && now - first_uncommitted_ >= options_.commit_interval);
  }
  if (due) {
    Commit();
  }
}

void History::Commit() {
  std::pair<std::vector<Committed>, absl::Status> ended;
  {
    const DiskTurn turn(mu_);
    ended = End();
  }
  for (const Committed& call : ended.first) {
    call(ended.second);
  }
}

absl::StatusOr<std::vector<v1::StepReport>> History::After(const std::string& job, Position position,
                                                           int limit, bool norms) {
  return Look([&](HistoryQueries& queries) {
    return queries.Reports(job, queries.after.Bind(job, position.attempt, position.step, limit), norms);
  });
}

absl::StatusOr<int64_t> History::CountAfter(const std::string& job, Position position) {
  return Look([&](HistoryQueries& queries) {
    return ReadNumber(queries.count_after.Bind(job, position.attempt, position.step));
  });
}

absl::StatusOr<std::optional<v1::StepReport>> History::Newest(const std::string& job, Position position,
                                                              bool norms) {
  TANDEM_ASSIGN_OR_RETURN(std::vector<v1::StepReport> reports, Look([&](HistoryQueries& queries) {
                            return queries.Reports(
                                job, queries.newest.Bind(job, position.attempt, position.step), norms);
                          }));
  return reports.empty() ? std::nullopt : std::optional<v1::StepReport>(std::move(reports.front()));
}

absl::StatusOr<std::vector<v1::StepReport>> History::Range(const std::string& job, int64_t first,
                                                           int64_t last, int limit, bool norms) {
  return Look([&](HistoryQueries& queries) {
    return queries.Reports(job, queries.range.Bind(job, first, last > 0 ? last : INT64_MAX, limit), norms);
  });
}

absl::StatusOr<std::optional<v1::StepReport>> History::First(const std::string& job, int64_t first,
                                                             int64_t last, bool norms) {
  TANDEM_ASSIGN_OR_RETURN(std::vector<v1::StepReport> found,
                          Look([&](HistoryQueries& queries) -> absl::StatusOr<std::vector<v1::StepReport>> {
                            int64_t at = first;
                            if (norms) {
                              TANDEM_ASSIGN_OR_RETURN(const std::optional<int64_t> step,
                                                      queries.norms.FirstStep(job, first, last));
                              if (!step.has_value()) {
                                return std::vector<v1::StepReport>{};
                              }
                              at = *step;
                            }
                            return queries.Reports(job, queries.range.Bind(job, at, last, 1), norms);
                          }));
  return found.empty() ? std::nullopt : std::optional<v1::StepReport>(std::move(found[0]));
}

absl::StatusOr<std::vector<v1::StepReport>> History::Spread(const std::string& job, int64_t first,
                                                            int64_t last, int points, const Trim& trim) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t highest,
                          Look([&](HistoryQueries& queries) { return queries.HighestStep(job); }));
  const int64_t end = last > 0 ? std::min(last, highest) : highest;
  const bool norms = trim != nullptr;
  int64_t stride = 0;
  std::vector<v1::StepReport> out;
  // Reads each report by itself, because reading all steps in between would block the writer.
  for (int64_t at = first; at <= end;) {
    TANDEM_ASSIGN_OR_RETURN(std::optional<v1::StepReport> next, First(job, at, end, norms));
    if (!next.has_value()) {
      break;
    }
    v1::StepReport& report = *next;
    const int64_t step = report.step();
    if (stride == 0) {  // counts from the first report that exists
      const int64_t begin = std::max<int64_t>(step, 1);
      stride = std::max<int64_t>(1, (end - begin + points - 2) / (points - 1));
    }
    if (norms && report.has_norms()) {
      trim(*report.mutable_norms());
    }
    out.push_back(std::move(report));
    at = std::max(step + 1, (out.size() == 1 ? step : at) + stride);
    if (step < end && at > end) {
      at = end;  // the newest report is always included
    }
  }
  return out;
}

absl::StatusOr<std::optional<v1::ParameterTable>> History::Table(const std::string& digest) {
  return Look([&](HistoryQueries& queries) {
    return ReadRow<v1::ParameterTable>(queries.get_table.Bind(digest), UnreadableReport());
  });
}

absl::StatusOr<History::Position> History::Last(const std::string& job) {
  return Look([&](HistoryQueries& queries) -> absl::StatusOr<Position> {
    Position out;
    TANDEM_RETURN_IF_ERROR(TakeFirst(queries.last.Bind(job), [&](const Statement& row) {
      out = {.attempt = static_cast<int>(row.Int(0)), .step = row.Int(1)};
    }));
    return out;
  });
}

absl::StatusOr<StepTotals> History::Totals(const std::string& job) {
  return Look([&](HistoryQueries& queries) -> absl::StatusOr<StepTotals> {
    StepTotals out;
    TANDEM_RETURN_IF_ERROR(TakeFirst(queries.get_totals.Bind(job), [&](const Statement& row) {
      out = {.steps = row.Int(0), .seconds = static_cast<double>(row.Int(1)) * 1e-6};
    }));
    return out;
  });
}

absl::StatusOr<int64_t> History::LastStep(const std::string& job) {
  return LookAtCommitted([&](HistoryQueries& queries) { return queries.HighestStep(job); });
}

absl::Status History::CheckInPlace() const {
  const DiskTurn turn(mu_);
  return db_->CheckInPlace();
}

int64_t History::norm_bytes() const {
  const DiskTurn turn(mu_);
  return norms_->bytes();
}

absl::Status FillLastStep(History& history, v1::Job& job) {
  const absl::StatusOr<int64_t> step = history.LastStep(job.id());
  if (!step.ok()) {
    return absl::IsDataLoss(step.status()) ? absl::OkStatus() : step.status();
  }
  job.set_last_step(std::max(job.last_step(), *step));
  return absl::OkStatus();
}

}  // namespace tandem::controller
