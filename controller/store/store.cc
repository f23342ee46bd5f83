// SPDX-License-Identifier: Apache-2.0
#include "controller/store/store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "controller/core/decide.h"
#include "controller/store/sqlite.h"
#include "platform/log.h"
#include "platform/status_macros.h"
#include "platform/xxh3.h"

namespace tandem::controller {
namespace {

constexpr int64_t kStoreSchema = 1;
constexpr size_t kLeastIdPrefix = 4;
constexpr int kMostCandidates = 4;                   // that an error about an ambiguous prefix names
constexpr int64_t kMostLogBytes = int64_t{4} << 20;  // beyond it, the log is emptied at once

constexpr char kTables[] = R"(
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS event_kinds (kind TEXT PRIMARY KEY, schema INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (seq INTEGER PRIMARY KEY, job TEXT NOT NULL, kind TEXT NOT NULL, data BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS events_of_job ON events (job, seq);
CREATE TABLE IF NOT EXISTS jobs (id TEXT PRIMARY KEY, submitted INTEGER NOT NULL UNIQUE, name TEXT NOT NULL,
  state INTEGER NOT NULL, live INTEGER NOT NULL, job BLOB NOT NULL, runtime BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS jobs_by_name ON jobs (name, live, submitted);
CREATE INDEX IF NOT EXISTS live_jobs ON jobs (submitted) WHERE live = 1;
CREATE TABLE IF NOT EXISTS requests (owner TEXT NOT NULL, request TEXT NOT NULL, job TEXT NOT NULL,
  PRIMARY KEY (owner, request)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS job_sums (id TEXT PRIMARY KEY, revision INTEGER NOT NULL, sum TEXT NOT NULL) WITHOUT ROWID;
)";

absl::Status DataLoss(const std::string& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat(path, ": the store holds ", what, " that cannot be read"));
}

// A damaged file is not repaired here, because acknowledged commits must not be dropped silently.
constexpr char kOfDamage[] = "put a copy of it back, or give another --state and submit the jobs again";

absl::Status MakeDirectory(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("cannot make the state directory ", directory, ": ",
                                               error.message(),
                                               "; make it for this user, or give another --state"));
  }
  // SQLite's error is only "unable to open database file".
  if (faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot write the state directory ", directory, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

// Computes the checksum of all columns of a row of jobs. SQLite has checksums only in its log: a bit that
// flips in the main file is found if it breaks a page, but not if it changes a page's content.
std::string SumOf(std::string_view id, int64_t submitted, std::string_view name, int64_t state, int64_t live,
                  std::string_view job, std::string_view runtime) {
  platform::Xxh3 sum;
  for (const std::string_view text : {id, name, job, runtime}) {
    sum.Add(absl::StrCat(text.size(), ":"));
    sum.Add(text);
  }
  sum.Add(absl::StrCat(submitted, ":", state, ":", live));
  return sum.Get();
}

bool ParseEntry(const Statement& row, JobEntry& out) {
  return out.job.ParseFromString(row.Bytes(0)) && out.runtime.ParseFromString(row.Bytes(1));
}

}  // namespace

struct Store::Statements {
  Database& db;
  Statement insert_event = db.Prepare("INSERT INTO events VALUES (?, ?, ?, ?)");
  Statement insert_kind = db.Prepare("INSERT OR IGNORE INTO event_kinds VALUES (?, ?)");
  Statement upsert_job = db.Prepare(
      "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET state = excluded.state, "
      "live = excluded.live, job = excluded.job, runtime = excluded.runtime");
  Statement put_sum = db.Prepare("INSERT OR REPLACE INTO job_sums VALUES (?, ?, ?)");
  Statement insert_request = db.Prepare("INSERT OR IGNORE INTO requests VALUES (?, ?, ?)");
  Statement put_filler = db.Prepare("INSERT OR REPLACE INTO meta VALUES ('filler', zeroblob(65536))");
  Statement find_row = db.Prepare("SELECT job, runtime FROM jobs WHERE id = ?");
  Statement find_request = db.Prepare(
      "SELECT jobs.job FROM requests JOIN jobs ON jobs.id = requests.job WHERE owner = ? AND request = ?");
};

struct Store::Queries {
  Database& db;
  Statement find_id = db.Prepare("SELECT job FROM jobs WHERE id = ?");
  Statement find_prefix = db.Prepare("SELECT job FROM jobs WHERE id > ? AND id < ? ORDER BY id LIMIT ?");
  Statement find_name =
      db.Prepare("SELECT job FROM jobs WHERE name = ? ORDER BY live DESC, submitted DESC LIMIT 1");
  Statement events_of_all = db.Prepare("SELECT data FROM events WHERE seq > ? ORDER BY seq LIMIT ?");
  Statement events_of_job =
      db.Prepare("SELECT data FROM events WHERE job = ? AND seq > ? ORDER BY seq LIMIT ?");
};

Store::Store(std::unique_ptr<Database> db, const std::string& directory)
    : path_(absl::StrCat(directory, "/controller.db")),
      db_(std::move(db)),
      journal_(absl::StrCat(directory, "/controller.journal")) {}

Store::~Store() = default;

absl::StatusOr<std::unique_ptr<Store>> Store::OpenIn(const std::string& directory, platform::Random& random) {
  TANDEM_RETURN_IF_ERROR(MakeDirectory(directory));
  const std::string path = absl::StrCat(directory, "/controller.db");
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Database> db, Database::Open(path, Database::Sync::kFull));
  TANDEM_RETURN_IF_ERROR(db->Check());
  TANDEM_RETURN_IF_ERROR(db->CheckIndexes("jobs"));
  // Only Tidy moves the log to the file. SQLite's own way would leave frames that are older than the file,
  // and that would be read again, up to the first damaged frame.
  TANDEM_RETURN_IF_ERROR(db->Execute("PRAGMA wal_autocheckpoint=0"));
  std::unique_ptr<Store> store(new Store(std::move(db), directory));
  TANDEM_RETURN_IF_ERROR(store->Prepare(random));
  TANDEM_RETURN_IF_ERROR(store->OpenReader());
  return store;
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& directory, platform::Random& random) {
  absl::StatusOr<std::unique_ptr<Store>> store = OpenIn(directory, random);
  return store.ok() ? std::move(store) : WithRemedy(store.status(), kOfDamage);
}

absl::Status Store::Prepare(platform::Random& random) {
  const DiskTurn turn(mu_);
  // Reads what the store says about itself before anything is written to it.
  Statement has_meta = db_->Prepare("SELECT count(*) FROM sqlite_master WHERE name = 'meta'");
  TANDEM_ASSIGN_OR_RETURN(const int64_t num_meta, ReadNumber(has_meta));
  int64_t schema = kStoreSchema;
  if (num_meta > 0) {
    Statement meta = db_->Prepare("SELECT key, value FROM meta");
    while (meta.Next()) {
      const std::string key = meta.Bytes(0);
      const std::string value = meta.Bytes(1);
      if (key == "store_id") {
        store_id_ = value;
      } else if (key == "term" && !absl::SimpleAtoi(value, &term_)) {
        return DataLoss(path_, "a term");
      } else if (key == "schema" && !absl::SimpleAtoi(value, &schema)) {
        return DataLoss(path_, "a schema");
      }
    }
    TANDEM_RETURN_IF_ERROR(meta.Finish());
    if (schema != kStoreSchema) {
      return absl::FailedPreconditionError(
          absl::StrCat(path_, ": schema ", schema, " is not known to this build (it knows ", kStoreSchema,
                       "); run the build that wrote it, or a newer one"));
    }
    Statement kinds = db_->Prepare("SELECT kind, schema FROM event_kinds");
    while (kinds.Next()) {
      if (!IsKnownKind(kinds.Bytes(0)) || kinds.Int(1) != kEventSchema) {
        return absl::FailedPreconditionError(
            absl::StrCat(path_, ": events of kind ", kinds.Bytes(0), " and schema ", kinds.Int(1),
                         " are not known to this build; run the build that wrote them, or a newer one"));
      }
    }
    TANDEM_RETURN_IF_ERROR(kinds.Finish());
  }
  if (const absl::Status complete = CheckComplete(); !complete.ok()) {
    db_->KeepLog();  // so that the cause can be analysed
    return complete;
  }
  if (store_id_.empty()) {
    store_id_ = random.HexId(16);
  }
  ++term_;
  TANDEM_RETURN_IF_ERROR(db_->Execute(absl::StrCat("BEGIN;", kTables)));
  Statement put = db_->Prepare("INSERT OR REPLACE INTO meta VALUES (?, ?)");
  for (const auto& [key, value] : {std::pair<std::string, std::string>{"schema", absl::StrCat(kStoreSchema)},
                                   {"store_id", store_id_},
                                   {"term", absl::StrCat(term_)}}) {
    TANDEM_RETURN_IF_ERROR(put.Run(key, value));
  }
  TANDEM_RETURN_IF_ERROR(db_->Execute("COMMIT"));
  statements_ = std::make_unique<Statements>(*db_);
  return absl::OkStatus();
}

absl::Status Store::OpenReader() {
  const DiskTurn turn(reader_mu_);
  TANDEM_ASSIGN_OR_RETURN(reader_, Database::OpenReader(path_));
  queries_ = std::make_unique<Queries>(*reader_);
  return absl::OkStatus();
}

absl::Status Store::Tidy() {
  TANDEM_ASSIGN_OR_RETURN(const bool emptied, db_->EmptyLog());
  if (emptied) {
    TANDEM_RETURN_IF_ERROR(journal_.Begin(store_id_, term_, last_seq_));
    tidy_ = true;
  }
  return absl::OkStatus();
}

absl::Status Store::TidyIfQuiet() {
  const DiskTurn turn(mu_);
  if (!std::exchange(quiet_, true) || tidy_) {
    return absl::OkStatus();
  }
  TANDEM_RETURN_IF_ERROR(db_->CheckInPlace());
  const absl::Status tidied = Tidy();
  return absl::IsResourceExhausted(tidied) ? absl::OkStatus() : tidied;  // the next quiet second tries again
}

absl::StatusOr<State> Store::Load() {
  absl::StatusOr<State> state = ReadState();
  return state.ok() ? std::move(state) : WithRemedy(state.status(), kOfDamage);
}

absl::StatusOr<State> Store::ReadState() {
  const DiskTurn turn(mu_);
  State state;
  Statement last = db_->Prepare("SELECT coalesce(max(seq), 0) FROM events");
  TANDEM_ASSIGN_OR_RETURN(last_seq_, ReadNumber(last));
  state.last_seq = last_seq_;
  Statement lost = db_->Prepare("SELECT id FROM job_sums WHERE id NOT IN (SELECT id FROM jobs) LIMIT 1");
  if (lost.Next()) {
    return absl::DataLossError(absl::StrCat(path_, " is damaged: job ", lost.Bytes(0), " is missing"));
  }
  TANDEM_RETURN_IF_ERROR(lost.Finish());
  Statement all = db_->Prepare(
      "SELECT job, runtime, jobs.id, submitted, name, state, live, job_sums.revision, sum FROM jobs LEFT "
      "JOIN "
      "job_sums USING (id)");
  while (all.Next()) {
    JobEntry entry;
    if (!ParseEntry(all, entry)) {
      return DataLoss(path_, "a job");
    }
    if (state.jobs.contains(entry.job.id())) {
      return absl::DataLossError(absl::StrCat(path_, ": the store holds job ", entry.job.id(), " twice"));
    }
    // A row of an older build has no checksum, or that of an earlier revision.
    const std::string sum = all.Bytes(8);
    if (!sum.empty() && all.Int(7) >= entry.job.revision() &&
        sum != SumOf(all.Bytes(2), all.Int(3), all.Bytes(4), all.Int(5), all.Int(6), all.Bytes(0),
                     all.Bytes(1))) {
      return absl::DataLossError(absl::StrCat(path_, ": job ", all.Bytes(2), " is damaged"));
    }
    if (all.Int(6) != 0) {
      state.jobs.Add(std::move(entry));
    }
  }
  TANDEM_RETURN_IF_ERROR(all.Finish());
  TANDEM_RETURN_IF_ERROR(Replay(state));
  state.jobs.RemoveEnded();
  former_.reset();
  tidy_ = false;
  if (const absl::Status tidied = Tidy(); !tidied.ok() && !absl::IsResourceExhausted(tidied)) {
    return tidied;
  }
  return state;
}

absl::Status Store::Begin() {
  TANDEM_RETURN_IF_ERROR(db_->CheckInPlace());
  return db_->Execute("BEGIN");
}

absl::Status Store::End(absl::Status written) {
  if (written.ok()) {
    written = db_->Execute("COMMIT");
  }
  if (!written.ok()) {
    // The first error is reported. After some errors SQLite has rolled back by itself.
    db_->Execute("ROLLBACK").IgnoreError();
  }
  return written;
}

absl::Status Store::Commit(const std::vector<v1::Event>& events, const std::vector<const JobEntry*>& rows) {
  const DiskTurn turn(mu_);
  return CommitNow(events, rows);
}

absl::Status Store::CommitNow(const std::vector<v1::Event>& events,
                              const std::vector<const JobEntry*>& rows) {
  TANDEM_RETURN_IF_ERROR(Begin());
  TANDEM_RETURN_IF_ERROR(End(Write(events, rows)));
  tidy_ = quiet_ = false;
  if (!events.empty()) {
    last_seq_ = events.back().seq();
  }
  if (const absl::Status noted = journal_.Append(events); !noted.ok()) {
    platform::Log(platform::LogLevel::kWarning,
                  "the journal of the store cannot be written; it is begun anew in the next quiet second",
                  {{"error", std::string(noted.message())}});
  }
  // The commit is durable, even if the log cannot be emptied.
  if (db_->LogBytes() > kMostLogBytes) {
    const absl::Status tidied = Tidy();
    return absl::IsResourceExhausted(tidied) ? absl::OkStatus() : tidied;
  }
  return absl::OkStatus();
}

absl::Status Store::CheckRoom() {
  const DiskTurn turn(mu_);
  TANDEM_RETURN_IF_ERROR(Begin());
  return End(statements_->put_filler.Run());
}

absl::Status Store::Write(const std::vector<v1::Event>& events, const std::vector<const JobEntry*>& rows) {
  for (const v1::Event& event : events) {
    const std::string kind = KindOf(event);
    TANDEM_RETURN_IF_ERROR(statements_->insert_kind.Run(kind, event.schema()));
    TANDEM_RETURN_IF_ERROR(
        statements_->insert_event.Run(event.seq(), event.job_id(), kind, Blob{event.SerializeAsString()}));
    if (event.has_submitted() && !event.submitted().request_id().empty()) {
      TANDEM_RETURN_IF_ERROR(statements_->insert_request.Run(event.submitted().owner(),
                                                             event.submitted().request_id(), event.job_id()));
    }
  }
  for (const JobEntry* row : rows) {
    const v1::Job& job = row->job;
    const int64_t submitted = row->runtime.submitted_seq();
    const int64_t live = IsTerminal(job.state()) ? 0 : 1;
    const std::string job_bytes = job.SerializeAsString();
    const std::string runtime_bytes = row->runtime.SerializeAsString();
    TANDEM_RETURN_IF_ERROR(statements_->upsert_job.Run(job.id(), submitted, job.name(), job.state(), live,
                                                       Blob{job_bytes}, Blob{runtime_bytes}));
    TANDEM_RETURN_IF_ERROR(statements_->put_sum.Run(
        job.id(), job.revision(),
        SumOf(job.id(), submitted, job.name(), job.state(), live, job_bytes, runtime_bytes)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<v1::Job>> Store::Find(const std::string& id_or_name) {
  const DiskTurn turn(reader_mu_, DiskLock::kPatience);
  TANDEM_RETURN_IF_ERROR(turn.status());
  absl::StatusOr<std::optional<v1::Job>> out =
      ReadRow<v1::Job>(queries_->find_id.Bind(id_or_name), DataLoss(path_, "a job"));
  if (!out.ok() || out->has_value()) {
    return out;
  }
  return ReadRow<v1::Job>(queries_->find_name.Bind(id_or_name), DataLoss(path_, "a job"));
}

absl::StatusOr<v1::Job> Store::Lookup(const std::string& text) {
  TANDEM_ASSIGN_OR_RETURN(std::optional<v1::Job> found, Find(text));
  if (found.has_value()) {
    return *std::move(found);
  }
  std::vector<v1::Job> candidates;
  const bool hexadecimal = text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (hexadecimal && text.size() >= kLeastIdPrefix) {
    const DiskTurn turn(reader_mu_, DiskLock::kPatience);
    TANDEM_RETURN_IF_ERROR(turn.status());
    TANDEM_ASSIGN_OR_RETURN(
        candidates, ReadRows<v1::Job>(queries_->find_prefix.Bind(text, text + "g", kMostCandidates + 1),
                                      DataLoss(path_, "a job")));
  }
  if (candidates.empty()) {
    return absl::NotFoundError(absl::StrCat("no job ", text, "; `tandem get jobs` lists them"));
  }
  if (candidates.size() > 1) {
    std::vector<std::string> ids;
    for (size_t i = 0; i < candidates.size(); ++i) {
      ids.push_back(static_cast<int>(i) < kMostCandidates ? candidates[i].id() : "...");
    }
    return absl::InvalidArgumentError(absl::StrCat("the ids of several jobs begin with ", text, ": ",
                                                   absl::StrJoin(ids, ", "), "; give more of the id"));
  }
  return std::move(candidates.front());
}

absl::StatusOr<std::optional<JobEntry>> Store::Row(const std::string& id) {
  const DiskTurn turn(mu_);
  return ReadRow<JobEntry>(statements_->find_row.Bind(id), DataLoss(path_, "a job"), ParseEntry);
}

absl::Status Store::CheckInPlace() const {
  const DiskTurn turn(mu_);
  return db_->CheckInPlace();
}

absl::StatusOr<std::optional<v1::Job>> Store::FindRequest(const std::string& owner,
                                                          const std::string& request_id) {
  const DiskTurn turn(mu_);
  return ReadRow<v1::Job>(statements_->find_request.Bind(owner, request_id), DataLoss(path_, "a job"));
}

absl::StatusOr<std::vector<std::pair<int64_t, v1::Job>>> Store::List(int64_t before, int limit,
                                                                     const std::set<v1::JobState>& states) {
  const DiskTurn turn(reader_mu_, DiskLock::kPatience);
  TANDEM_RETURN_IF_ERROR(turn.status());
  std::string sql = "SELECT submitted, job FROM jobs WHERE submitted < ?";
  if (!states.empty()) {
    absl::StrAppend(&sql, " AND state IN (",
                    absl::StrJoin(states, ",",
                                  [](std::string* out, v1::JobState state) {
                                    absl::StrAppend(out, static_cast<int>(state));
                                  }),
                    ")");
  }
  absl::StrAppend(&sql, " ORDER BY submitted DESC LIMIT ?");
  Statement query = reader_->Prepare(sql);
  query.Bind(before > 0 ? before : INT64_MAX, limit);
  using Listed = std::pair<int64_t, v1::Job>;
  return ReadRows<Listed>(query, DataLoss(path_, "a job"), [](const Statement& row, Listed& out) {
    out.first = row.Int(0);
    return out.second.ParseFromString(row.Bytes(1));
  });
}

absl::StatusOr<std::vector<v1::Event>> Store::Events(const std::string& job_id, int64_t seq, int limit) {
  const DiskTurn turn(reader_mu_, DiskLock::kPatience);
  TANDEM_RETURN_IF_ERROR(turn.status());
  Statement& query = job_id.empty() ? queries_->events_of_all : queries_->events_of_job.Bind(job_id);
  return ReadRows<v1::Event>(query.Bind(seq, limit), DataLoss(path_, "an event"));
}

}  // namespace tandem::controller
