// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <google/protobuf/message_lite.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "platform/status_macros.h"

struct sqlite3;
struct sqlite3_stmt;

namespace tandem::controller {

// Bytes that are not text.
struct Blob {
  std::string_view bytes;
};

// One prepared statement, used like
//   Statement insert = db.Prepare("INSERT INTO t VALUES (?, ?)");
//   insert.Run(1, "two");  // or: query.Bind(1); while (query.Next()) query.Int(0) ...
//
// Run and Finish reset it for the next use, and return the first error since the last Run or Finish.
class Statement {
 public:
  Statement(sqlite3* db, std::string_view sql);

  // Binds the parameters in their order: integers, strings and blobs.
  template <typename... Values>
  Statement& Bind(const Values&... values) {
    (BindNext(values), ...);
    return *this;
  }

  // Executes a statement that returns no rows, with these parameters.
  template <typename... Values>
  absl::Status Run(const Values&... values) {
    Bind(values...);
    while (Next()) {
    }
    return Finish();
  }

  // Moves to the next row. Returns false at the end or on an error (see Finish).
  bool Next();
  int64_t Int(int column) const;
  std::string Bytes(int column) const;

  // Ends a query, early or after its last row. Returns its first error.
  absl::Status Finish();

 private:
  struct Deleter {
    void operator()(sqlite3_stmt* statement) const;
  };
  void Note(int rc);
  void BindNext(int64_t value);
  void BindNext(int value) { BindNext(static_cast<int64_t>(value)); }
  void BindNext(std::string_view text);
  void BindNext(Blob blob);

  sqlite3* db_;
  std::unique_ptr<sqlite3_stmt, Deleter> statement_;
  absl::Status status_;
  int next_parameter_ = 1;
};

// A connection to a file that only this process has open (SQLite's "unix-excl", with a write-ahead log). One
// connection writes; others read what it has committed, and never wait for its locks. A connection is not
// thread-safe. The message of every error begins with the file's path. ResourceExhausted: there was no room,
// nothing was written, and the write may be tried again; DataLoss: the file is damaged; PermissionDenied: the
// file cannot be written.
class Database {
 public:
  enum class Sync { kFull, kNormal };

  // Opens or creates the file to write. FailedPrecondition if another process has it open.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path, Sync sync);
  // Opens a connection that only reads, beside the one from Open, which must be closed after it.
  static absl::StatusOr<std::unique_ptr<Database>> OpenReader(const std::string& path);
  ~Database();

  // Moves the log's content to the main file, durably, and truncates the log. Returns false if a reader was
  // using the log, which then keeps its length and perhaps its content; try again.
  absl::StatusOr<bool> EmptyLog();
  int64_t LogBytes() const;
  // Keeps the log as it is when this connection closes, so that damage can be analysed.
  void KeepLog();

  // Makes a statement that another thread executes fail with Cancelled. Call from any thread.
  void Interrupt();

  // DataLoss if a page of the file is damaged. Reads the whole file.
  absl::Status Check();
  // DataLoss if the indexes of a table do not match its rows. OK if there is no such table.
  absl::Status CheckIndexes(const std::string& table);

  // FailedPrecondition if the path no longer leads to the open file, or to its log: it was deleted, moved or
  // replaced, and what is written now is lost with this process. Costs two calls of stat.
  absl::Status CheckInPlace() const;

  absl::Status Execute(const std::string& sql);
  Statement Prepare(std::string_view sql) { return Statement(db_, sql); }

 private:
  // Identifies the file at a path; all 0 if there is none.
  struct FileId {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const FileId&) const = default;
  };
  absl::Status RunCheck(const std::string& pragma);
  static FileId IdOf(const std::string& path);

  Database(sqlite3* db, std::string path) : db_(db), path_(std::move(path)) {}

  sqlite3* db_;
  const std::string path_;
  FileId file_;  // the files that were opened
  FileId log_;
};

// Adds to the error of a database in --state what to do about it; to DataLoss, `of_damage`. OK stays OK.
absl::Status WithRemedy(const absl::Status& status, absl::string_view of_damage);

// Parses the message in the first column of a row.
struct ParseMessage {
  bool operator()(const Statement& row, google::protobuf::MessageLite& out) const {
    return out.ParseFromString(row.Bytes(0));
  }
};

// Returns the rows of a bound query, in its order. parse(row, out) fills in `out` and returns false if the
// row cannot be parsed: then the result is `unreadable`, unless the query itself fails.
template <typename Row, typename Parse = ParseMessage>
absl::StatusOr<std::vector<Row>> ReadRows(Statement& query, const absl::Status& unreadable,
                                          const Parse& parse = {}) {
  std::vector<Row> out;
  bool readable = true;
  while (query.Next()) {
    readable = parse(std::as_const(query), out.emplace_back()) && readable;
  }
  TANDEM_RETURN_IF_ERROR(query.Finish());
  if (!readable) {
    return unreadable;
  }
  return out;
}

// As ReadRows, for a query that finds at most one row.
template <typename Row, typename Parse = ParseMessage>
absl::StatusOr<std::optional<Row>> ReadRow(Statement& query, const absl::Status& unreadable,
                                           const Parse& parse = {}) {
  TANDEM_ASSIGN_OR_RETURN(std::vector<Row> rows, ReadRows<Row>(query, unreadable, parse));
  return rows.empty() ? std::nullopt : std::optional<Row>(std::move(rows.front()));
}

// Calls take(row) with the first row that a bound query finds, if it finds one.
template <typename Take>
absl::Status TakeFirst(Statement& query, const Take& take) {
  if (query.Next()) {
    take(std::as_const(query));
  }
  return query.Finish();
}

// Returns the number in the first column of the first row of a bound query; 0 if there is no row.
inline absl::StatusOr<int64_t> ReadNumber(Statement& query) {
  int64_t number = 0;
  TANDEM_RETURN_IF_ERROR(TakeFirst(query, [&](const Statement& row) { number = row.Int(0); }));
  return number;
}

}  // namespace tandem::controller
