#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace tandem::controller {

// One prepared statement, used like
//   Statement insert = db.Prepare("INSERT INTO t VALUES (?, ?)");
//   insert.Bind(1).Bind("two");
//   insert.Run();                        // or: while (query.Next()) query.Int(0) ...
// Run and the end of Next's rows reset it for the next use. Errors stay in status() until Take().
class Statement {
 public:
  Statement(sqlite3* db, std::string_view sql);

  Statement& Bind(int64_t value);
  Statement& Bind(int value) { return Bind(static_cast<int64_t>(value)); }
  Statement& Bind(std::string_view text);
  Statement& BindBlob(std::string_view bytes);

  // Executes a statement that returns no rows.
  absl::Status Run();

  // The next row; false at the end or on an error (see Finish).
  bool Next();
  int64_t Int(int column) const;
  std::string Bytes(int column) const;
  bool IsNull(int column) const;

  // Ends a query early or after its last row: its error, if it had one.
  absl::Status Finish();

 private:
  struct Deleter {
    void operator()(sqlite3_stmt* statement) const;
  };
  void Note(int rc);

  sqlite3* db_;
  std::unique_ptr<sqlite3_stmt, Deleter> statement_;
  absl::Status status_;
  int next_parameter_ = 1;
};

// One connection that alone has its file (locking_mode EXCLUSIVE, write-ahead log). Not thread-safe.
class Database {
 public:
  enum class Sync { kFull, kNormal };

  // FailedPrecondition where another process has the file.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path, Sync sync);
  ~Database();

  absl::Status Execute(const std::string& sql);
  Statement Prepare(std::string_view sql) { return Statement(db_, sql); }

 private:
  explicit Database(sqlite3* db) : db_(db) {}

  sqlite3* db_;
};

}  // namespace tandem::controller
