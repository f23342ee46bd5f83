// SPDX-License-Identifier: Apache-2.0
#include "controller/store/history.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "controller/store/rows.h"
#include "controller/store/store_remedy.h"
#include "platform/failpoint.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace tandem::controller {
namespace {

constexpr int64_t kSchema = 1;

constexpr char kTables[] = R"(
CREATE TABLE IF NOT EXISTS reports (job TEXT NOT NULL, step INTEGER NOT NULL, attempt INTEGER NOT NULL,
  data BLOB NOT NULL, PRIMARY KEY (job, step)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS reports_in_order ON reports (job, attempt, step);
CREATE TABLE IF NOT EXISTS norms (id INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL, step INTEGER NOT NULL,
  attempt INTEGER NOT NULL, bytes INTEGER NOT NULL, data BLOB NOT NULL, UNIQUE (job, step));
DROP INDEX IF EXISTS norms_of_job;
CREATE INDEX IF NOT EXISTS norms_with_bytes ON norms (job, id, bytes);
CREATE TABLE IF NOT EXISTS totals (job TEXT PRIMARY KEY, last_step INTEGER NOT NULL, steps INTEGER NOT NULL,
  microseconds INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS item_tables (digest TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tables_of_jobs (job TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (job, digest))
  WITHOUT ROWID;
)";

constexpr char kAfter[] = "FROM reports WHERE job = ? AND (attempt, step) > (?, ?)";

// Nothing but reports is lost with it.
constexpr char kOfDamage[] = "move it away to go on without the old reports";

}  // namespace

struct History::Statements {
  Database& db;
  Statement insert = db.Prepare(
      "INSERT INTO reports VALUES (?, ?, ?, ?) ON CONFLICT (job, step) DO UPDATE SET attempt = "
      "excluded.attempt, data = excluded.data WHERE excluded.attempt >= attempt");
  Statement add_to_totals = db.Prepare(
      "INSERT INTO totals VALUES (?, ?, 1, ?) ON CONFLICT (job) DO UPDATE SET last_step = "
      "excluded.last_step, "
      "steps = steps + 1, microseconds = microseconds + excluded.microseconds WHERE excluded.last_step > "
      "last_step");
  Statement get_totals = db.Prepare("SELECT steps, microseconds FROM totals WHERE job = ?");
  Statement insert_table = db.Prepare("INSERT OR IGNORE INTO item_tables VALUES (?, ?)");
  Statement insert_table_of_job = db.Prepare("INSERT OR IGNORE INTO tables_of_jobs VALUES (?, ?)");
  Statement count_other_tables =
      db.Prepare("SELECT count(*) FROM tables_of_jobs WHERE job = ? AND digest <> ?");
  Statement get_table = db.Prepare("SELECT data FROM item_tables WHERE digest = ?");
  Statement after = db.Prepare(absl::StrCat("SELECT data ", kAfter, " ORDER BY attempt, step LIMIT ?"));
  Statement count_after = db.Prepare(absl::StrCat("SELECT count(*) ", kAfter));
  Statement newest =
      db.Prepare(absl::StrCat("SELECT data ", kAfter, " ORDER BY attempt DESC, step DESC LIMIT 1"));
  Statement range =
      db.Prepare("SELECT data FROM reports WHERE job = ? AND step >= ? AND step <= ? ORDER BY step LIMIT ?");
  Statement last =
      db.Prepare("SELECT attempt, step FROM reports WHERE job = ? ORDER BY attempt DESC, step DESC LIMIT 1");
  Statement last_step = db.Prepare("SELECT coalesce(max(step), 0) FROM reports WHERE job = ?");
};

History::History(std::unique_ptr<Database> db, const Options& options)
    : options_(options), db_(std::move(db)) {}

History::~History() {
  check_.reset();  // which calls this object
  Commit();
  const DiskTurn turn(mu_);
  norms_.reset();
  statements_.reset();
  db_.reset();
}

absl::StatusOr<std::unique_ptr<History>> History::OpenAt(const std::string& path, const Options& options) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Database> db, Database::Open(path, Database::Sync::kNormal));
  std::unique_ptr<History> out(new History(std::move(db), options));
  TANDEM_RETURN_IF_ERROR(out->Prepare());
  TANDEM_RETURN_IF_ERROR(out->StartCheck(path));
  return out;
}

absl::StatusOr<std::unique_ptr<History>> History::Open(const std::string& directory, const Options& options) {
  absl::StatusOr<std::unique_ptr<History>> out = OpenAt(absl::StrCat(directory, "/history.db"), options);
  if (!out.ok()) {
    return WithRemedy(out.status(), kOfDamage);
  }
  if ((*out)->AwaitCheck(options.check_patience)) {
    const DiskTurn turn((*out)->mu_);
    TANDEM_RETURN_IF_ERROR((*out)->damage_);
  }
  return out;
}

absl::Status History::StartCheck(const std::string& path) {
  {
    const DiskTurn turn(mu_);
    TANDEM_RETURN_IF_ERROR(db_->Freeze());
  }
  TANDEM_ASSIGN_OR_RETURN(check_,
                          DatabaseCheck::Start(path, [this](const absl::Status& found) { Checked(found); }));
  return absl::OkStatus();
}

void History::Checked(const absl::Status& found) {
  std::vector<Committed> waiting;
  absl::Status damage;
  {
    const DiskTurn turn(mu_);
    damage_ = WithRemedy(found, kOfDamage);
    if (damage_.ok()) {
      damage_ = db_->Thaw();
    }
    damage = damage_;
    if (!damage.ok()) {
      waiting = RollBack();
    }
  }
  if (!damage.ok()) {
    platform::Log(platform::LogLevel::kError, "the reports cannot be read, and no more are taken",
                  {{"error", std::string(damage.message())}});
  }
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
  durable_steps_.clear();
  return std::exchange(waiting_, {});
}

absl::Status History::Prepare() {
  const DiskTurn turn(mu_);
  Statement version = db_->Prepare("PRAGMA user_version");
  TANDEM_ASSIGN_OR_RETURN(const int64_t schema, ReadNumber(version));
  if (schema != 0 && schema != kSchema) {
    return absl::FailedPreconditionError(absl::StrCat("history.db: schema ", schema,
                                                      " is not known to this build (it knows ", kSchema,
                                                      "); run the build that wrote it, or a newer one"));
  }
  TANDEM_RETURN_IF_ERROR(db_->Execute(absl::StrCat(kTables, "PRAGMA user_version = ", kSchema)));
  statements_ = std::make_unique<Statements>(*db_);
  norms_.emplace(*db_, options_.norm_bytes_of_a_job, options_.norm_bytes);
  return norms_->Count();
}

absl::Status History::Insert(const std::string& job, const v1::StepReport& report) {
  v1::StepReport scalars = report;
  scalars.clear_norms();
  statements_->insert.Bind(job)
      .Bind(report.step())
      .Bind(report.attempt())
      .BindBlob(scalars.SerializeAsString());
  TANDEM_RETURN_IF_ERROR(statements_->insert.Run());
  if (report.step() > 0) {  // 0 is the validation before the first
    // A worker's word: what no step can have taken is nothing.
    const bool is_time = report.seconds() >= 0 && report.seconds() < 1e9;
    statements_->add_to_totals.Bind(job)
        .Bind(report.step())
        .Bind(int64_t{is_time ? std::llround(report.seconds() * 1e6) : 0});
    TANDEM_RETURN_IF_ERROR(statements_->add_to_totals.Run());
  }
  return report.has_norms() ? norms_->Insert(job, report) : absl::OkStatus();
}

absl::Status History::InsertTable(const std::string& job, const v1::ParameterTable& table) {
  statements_->count_other_tables.Bind(job).Bind(table.digest());
  TANDEM_ASSIGN_OR_RETURN(const int64_t others, ReadNumber(statements_->count_other_tables));
  if (others >= kMostTablesOfAJob) {
    return absl::OkStatus();  // its norms have no names then
  }
  statements_->insert_table_of_job.Bind(job).Bind(table.digest());
  TANDEM_RETURN_IF_ERROR(statements_->insert_table_of_job.Run());
  statements_->insert_table.Bind(table.digest()).BindBlob(table.SerializeAsString());
  return statements_->insert_table.Run();
}

absl::Status History::Add(const v1::ReportBatch& batch, absl::Time now, Committed committed) {
  std::pair<std::vector<Committed>, absl::Status> ended;
  {
    const DiskTurn turn(mu_, DiskLock::kPatience);
    if (!turn.status().ok()) {
      committed(turn.status());
      return turn.status();
    }
    absl::Status status = damage_;
    if (status.ok() && !open_) {
      status = db_->Execute("BEGIN");
      open_ = status.ok();
      first_uncommitted_ = now;
    }
    if (status.ok() && batch.has_table()) {
      status = InsertTable(batch.id().job_id(), batch.table());
    }
    if (status.ok() && !durable_steps_.contains(batch.id().job_id())) {
      const absl::StatusOr<int64_t> before = HighestStep(batch.id().job_id());
      status = before.status();
      if (status.ok()) {
        durable_steps_[batch.id().job_id()] = *before;
      }
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
    if (!damage_.ok()) {
      ended.second = damage_;  // the log has it
      ended.first.push_back(std::move(committed));
    } else if (!status.ok()) {
      platform::Log(platform::LogLevel::kError, "reports could not be stored; the workers send them again",
                    {{"error", std::string(status.message())}});
      // What else is in the transaction is sent again too, by the callers that get the error.
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
  absl::Status status = db_->CheckInPlace();
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
  open_ = false;
  durable_steps_.clear();
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

absl::StatusOr<std::vector<v1::StepReport>> History::Read(const std::string& job, Statement& query,
                                                          bool norms) {
  absl::StatusOr<std::vector<v1::StepReport>> out = ReadRows<v1::StepReport>(query, UnreadableReport());
  for (size_t i = 0; norms && out.ok() && i < out->size(); ++i) {
    TANDEM_RETURN_IF_ERROR(norms_->AddTo(job, (*out)[i]));
  }
  return out;
}

absl::StatusOr<std::vector<v1::StepReport>> History::After(const std::string& job, Position position,
                                                           int limit, bool norms) {
  const DiskTurn turn(mu_, DiskLock::kPatience);
  TANDEM_RETURN_IF_ERROR(turn.status());
  TANDEM_RETURN_IF_ERROR(damage_);
  statements_->after.Bind(job).Bind(position.attempt).Bind(position.step).Bind(limit);
  return Read(job, statements_->after, norms);
}

absl::StatusOr<int64_t> History::CountAfter(const std::string& job, Position position) {
  const DiskTurn turn(mu_, DiskLock::kPatience);
  TANDEM_RETURN_IF_ERROR(turn.status());
  TANDEM_RETURN_IF_ERROR(damage_);
  return ReadNumber(statements_->count_after.Bind(job).Bind(position.attempt).Bind(position.step));
}

absl::StatusOr<std::optional<v1::StepReport>> History::Newest(const std::string& job, Position position,
                                                              bool norms) {
  const DiskTurn turn(mu_, DiskLock::kPatience);
  TANDEM_RETURN_IF_ERROR(turn.status());
  TANDEM_RETURN_IF_ERROR(damage_);
  statements_->newest.Bind(job).Bind(position.attempt).Bind(position.step);
  TANDEM_ASSIGN_OR_RETURN(std::vector<v1::StepReport> reports, Read(job, statements_->newest, norms));
  return reports.empty() ? std::nullopt : std::optional<v1::StepReport>(std::move(reports.front()));
}

absl::StatusOr<std::vector<v1::StepReport>> History::Range(const std::string& job, int64_t first,
                                                           int64_t last, int limit, bool norms) {
  const DiskTurn turn(mu_, DiskLock::kPatience);
  TANDEM_RETURN_IF_ERROR(turn.status());
  TANDEM_RETURN_IF_ERROR(damage_);
  statements_->range.Bind(job).Bind(first).Bind(last > 0 ? last : INT64_MAX).Bind(limit);
  return Read(job, statements_->range, norms);
}

absl::StatusOr<std::optional<v1::StepReport>> History::First(const std::string& job, int64_t first,
                                                             int64_t last, bool norms) {
  const DiskTurn turn(mu_, DiskLock::kPatience);
  TANDEM_RETURN_IF_ERROR(turn.status());
  TANDEM_RETURN_IF_ERROR(damage_);
  if (norms) {
    TANDEM_ASSIGN_OR_RETURN(const std::optional<int64_t> step, norms_->FirstStep(job, first, last));
    if (!step.has_value()) {
      return std::nullopt;
    }
    first = *step;
  }
  statements_->range.Bind(job).Bind(first).Bind(last).Bind(int64_t{1});
  TANDEM_ASSIGN_OR_RETURN(std::vector<v1::StepReport> found, Read(job, statements_->range, norms));
  return found.empty() ? std::nullopt : std::optional<v1::StepReport>(std::move(found[0]));
}

absl::StatusOr<std::vector<v1::StepReport>> History::Spread(const std::string& job, int64_t first,
                                                            int64_t last, int points, const Trim& trim) {
  int64_t end = 0;
  {
    const DiskTurn turn(mu_, DiskLock::kPatience);
    TANDEM_RETURN_IF_ERROR(turn.status());
    TANDEM_RETURN_IF_ERROR(damage_);
    TANDEM_ASSIGN_OR_RETURN(const int64_t highest, HighestStep(job));
    end = last > 0 ? std::min(last, highest) : highest;
  }
  const bool norms = trim != nullptr;
  int64_t stride = 0;
  std::vector<v1::StepReport> out;
  // A look for each: reading every step in between would hold the writer up.
  for (int64_t at = first; at <= end;) {
    TANDEM_ASSIGN_OR_RETURN(std::optional<v1::StepReport> next, First(job, at, end, norms));
    if (!next.has_value()) {
      break;
    }
    v1::StepReport& report = *next;
    const int64_t step = report.step();
    if (stride == 0) {  // from the first that there is
      const int64_t begin = std::max<int64_t>(step, 1);
      stride = std::max<int64_t>(1, (end - begin + points - 2) / (points - 1));
    }
    if (norms && report.has_norms()) {
      trim(*report.mutable_norms());
    }
    out.push_back(std::move(report));
    at = std::max(step + 1, (out.size() == 1 ? step : at) + stride);
    if (step < end && at > end) {
      at = end;  // the newest is always among them
    }
  }
  return out;
}

absl::StatusOr<std::optional<v1::ParameterTable>> History::Table(const std::string& digest) {
  const DiskTurn turn(mu_, DiskLock::kPatience);
  TANDEM_RETURN_IF_ERROR(turn.status());
  TANDEM_RETURN_IF_ERROR(damage_);
  statements_->get_table.Bind(digest);
  return ReadRow<v1::ParameterTable>(statements_->get_table, UnreadableReport());
}

absl::StatusOr<History::Position> History::Last(const std::string& job) {
  const DiskTurn turn(mu_, DiskLock::kPatience);
  TANDEM_RETURN_IF_ERROR(turn.status());
  TANDEM_RETURN_IF_ERROR(damage_);
  Statement& query = statements_->last;
  query.Bind(job);
  Position out;
  if (query.Next()) {
    out = {.attempt = static_cast<int>(query.Int(0)), .step = query.Int(1)};
  }
  TANDEM_RETURN_IF_ERROR(query.Finish());
  return out;
}

absl::StatusOr<StepTotals> History::Totals(const std::string& job) {
  const DiskTurn turn(mu_, DiskLock::kPatience);
  TANDEM_RETURN_IF_ERROR(turn.status());
  TANDEM_RETURN_IF_ERROR(damage_);
  Statement& query = statements_->get_totals;
  query.Bind(job);
  StepTotals out;
  if (query.Next()) {
    out = {.steps = query.Int(0), .seconds = static_cast<double>(query.Int(1)) * 1e-6};
  }
  TANDEM_RETURN_IF_ERROR(query.Finish());
  return out;
}

absl::StatusOr<int64_t> History::LastStep(const std::string& job) {
  const DiskTurn turn(mu_, DiskLock::kPatience);
  TANDEM_RETURN_IF_ERROR(turn.status());
  TANDEM_RETURN_IF_ERROR(damage_);
  const auto durable = durable_steps_.find(job);
  return durable != durable_steps_.end() ? durable->second : HighestStep(job);
}

absl::StatusOr<int64_t> History::HighestStep(const std::string& job) {
  return ReadNumber(statements_->last_step.Bind(job));
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
