// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "controller/store/norm_ring.h"
#include "controller/store/sqlite.h"
#include "platform/status_macros.h"
#include "tandem/v1/report.pb.h"

namespace tandem::controller {

// The tables of DIR/history.db (history.h), and the statements that it prepares on them.

inline constexpr int64_t kHistorySchema = 1;

inline constexpr char kHistoryTables[] = R"(
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
CREATE TABLE IF NOT EXISTS commits (id INTEGER PRIMARY KEY CHECK (id = 1), count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS tables_of_jobs (job TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (job, digest))
  WITHOUT ROWID;
)";

// The statements of the connection that writes.
struct HistoryStatements {
  Database& db;
  Statement insert = db.Prepare(
      "INSERT INTO reports VALUES (?, ?, ?, ?) ON CONFLICT (job, step) DO UPDATE SET attempt = "
      "excluded.attempt, data = excluded.data WHERE excluded.attempt >= attempt");
  Statement add_to_totals = db.Prepare(
      "INSERT INTO totals VALUES (?, ?, 1, ?) ON CONFLICT (job) DO UPDATE SET last_step = "
      "excluded.last_step, "
      "steps = steps + 1, microseconds = microseconds + excluded.microseconds WHERE excluded.last_step > "
      "last_step");
  Statement insert_table = db.Prepare("INSERT OR IGNORE INTO item_tables VALUES (?, ?)");
  Statement insert_table_of_job = db.Prepare("INSERT OR IGNORE INTO tables_of_jobs VALUES (?, ?)");
  Statement count_other_tables =
      db.Prepare("SELECT count(*) FROM tables_of_jobs WHERE job = ? AND digest <> ?");
  Statement put_commits = db.Prepare("INSERT OR REPLACE INTO commits VALUES (1, ?)");
};

// The queries of both connections.
struct HistoryQueries {
  Database& db;
  Statement get_totals = db.Prepare("SELECT steps, microseconds FROM totals WHERE job = ?");
  Statement get_table = db.Prepare("SELECT data FROM item_tables WHERE digest = ?");
  static constexpr char kAfter[] = "FROM reports WHERE job = ? AND (attempt, step) > (?, ?)";
  Statement after = db.Prepare(absl::StrCat("SELECT data ", kAfter, " ORDER BY attempt, step LIMIT ?"));
  Statement count_after = db.Prepare(absl::StrCat("SELECT count(*) ", kAfter));
  Statement newest =
      db.Prepare(absl::StrCat("SELECT data ", kAfter, " ORDER BY attempt DESC, step DESC LIMIT 1"));
  Statement range =
      db.Prepare("SELECT data FROM reports WHERE job = ? AND step >= ? AND step <= ? ORDER BY step LIMIT ?");
  Statement last =
      db.Prepare("SELECT attempt, step FROM reports WHERE job = ? ORDER BY attempt DESC, step DESC LIMIT 1");
  Statement last_step = db.Prepare("SELECT coalesce(max(step), 0) FROM reports WHERE job = ?");
  NormReader norms = NormReader(db);

  absl::StatusOr<int64_t> HighestStep(const std::string& job) { return ReadNumber(last_step.Bind(job)); }

  // Returns the reports that `query` finds, which is one of the queries above.
  absl::StatusOr<std::vector<v1::StepReport>> Reports(const std::string& job, Statement& query,
                                                      bool with_norms) {
    absl::StatusOr<std::vector<v1::StepReport>> out = ReadRows<v1::StepReport>(query, UnreadableReport());
    for (size_t i = 0; with_norms && out.ok() && i < out->size(); ++i) {
      TANDEM_RETURN_IF_ERROR(norms.AddTo(job, (*out)[i]));
    }
    return out;
  }
};

}  // namespace tandem::controller
