// SPDX-License-Identifier: Apache-2.0
#include "controller/store/sqlite.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "platform/regular_file.h"
#include "platform/status_macros.h"

namespace tandem::controller {
namespace {

// The process locks the file, not each connection: no other process can read or write it, and the index of
// the log is in this process's memory instead of a file.
constexpr char kOfThisProcess[] = "unix-excl";
constexpr int kBusyMs = 100;  // how long a connection waits for a statement of another

absl::Status OpenErrorOf(sqlite3* db, const std::string& path) {
  std::string text = absl::StrCat(path, ": SQLite: ", sqlite3_errmsg(db));
  if (const int error = sqlite3_system_errno(db); error != 0) {
    absl::StrAppend(&text, ": ", std::strerror(error));
  }
  return absl::UnavailableError(text);
}

// Returns the errno of the write that failed. SQLite 3.40 does not set it for the connection if a COMMIT
// writes the log.
int LastErrno(sqlite3* db, int rc) {
  sqlite3_file* log = nullptr;
  int error = 0;
  if (rc == SQLITE_IOERR_WRITE &&
      sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log) == SQLITE_OK && log != nullptr &&
      log->pMethods != nullptr) {
    log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &error);
  }
  return error != 0 ? error : sqlite3_system_errno(db);
}

// Converts an extended error code.
absl::Status ErrorOf(sqlite3* db, int rc) {
  const char* path = sqlite3_db_filename(db, "main");
  std::string text = absl::StrCat(path == nullptr ? "" : path, ": SQLite: ", sqlite3_errmsg(db));
  const int kind = rc & 0xff;
  // "disk I/O error" alone does not name the error.
  const int error = LastErrno(db, rc);
  if (error != 0 && (kind == SQLITE_IOERR || kind == SQLITE_CANTOPEN || kind == SQLITE_FULL)) {
    absl::StrAppend(&text, ": ", std::strerror(error));
  }
  // SQLite calls only ENOSPC "full". A failed fsync is not among these, because after it the content of the
  // disk is unknown.
  if (rc == SQLITE_IOERR_WRITE && (error == ENOSPC || error == EDQUOT || error == EFBIG)) {
    return absl::ResourceExhaustedError(text);
  }
  switch (kind) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(text);
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(text);
    case SQLITE_READONLY:
      return absl::PermissionDeniedError(text);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(text);
    case SQLITE_INTERRUPT:
      return absl::CancelledError(text);
    default:
      return absl::InternalError(text);
  }
}

}  // namespace

void Statement::Deleter::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Statement::Statement(sqlite3* db, std::string_view sql) : db_(db) {
  sqlite3_stmt* statement = nullptr;
  Note(sqlite3_prepare_v2(db, sql.data(), static_cast<int>(sql.size()), &statement, nullptr));
  statement_.reset(statement);
}

void Statement::Note(int rc) {
  if (rc != SQLITE_OK && rc != SQLITE_ROW && rc != SQLITE_DONE && status_.ok()) {
    status_ = ErrorOf(db_, rc);
  }
}

void Statement::BindNext(int64_t value) {
  Note(sqlite3_bind_int64(statement_.get(), next_parameter_++, value));
}

void Statement::BindNext(std::string_view text) {
  Note(sqlite3_bind_text(statement_.get(), next_parameter_++, text.data(), static_cast<int>(text.size()),
                         SQLITE_TRANSIENT));
}

void Statement::BindNext(Blob blob) {
  const std::string_view bytes = blob.bytes;
  Note(sqlite3_bind_blob64(statement_.get(), next_parameter_++, bytes.data() == nullptr ? "" : bytes.data(),
                           bytes.size(), SQLITE_TRANSIENT));
}

bool Statement::Next() {
  if (!status_.ok()) {
    return false;
  }
  const int rc = sqlite3_step(statement_.get());
  Note(rc);
  return rc == SQLITE_ROW;
}

int64_t Statement::Int(int column) const { return sqlite3_column_int64(statement_.get(), column); }

std::string Statement::Bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_.get(), column);
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), size);
}

absl::Status Statement::Finish() {
  if (statement_ != nullptr) {
    sqlite3_reset(statement_.get());
  }
  next_parameter_ = 1;
  absl::Status out = status_;
  status_ = absl::OkStatus();
  return out;
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path, Sync sync) {
  // SQLite reports a FIFO as "not a database". The file is closed again here before SQLite has locks on it.
  const absl::Status regular = platform::OpenRegularFile(path, O_RDONLY).status();
  if (absl::IsInvalidArgument(regular)) {
    return regular;
  }
  sqlite3* db = nullptr;
  const int rc = sqlite3_open_v2(
      path.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, kOfThisProcess);
  std::unique_ptr<Database> out(new Database(db, path));
  if (rc != SQLITE_OK) {
    return OpenErrorOf(db, path);
  }
  sqlite3_extended_result_codes(db, 1);
  for (const char* pragma : {"PRAGMA journal_mode=WAL",
                             sync == Sync::kFull ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL",
                             // The first write takes the lock.
                             "BEGIN IMMEDIATE", "COMMIT"}) {
    const absl::Status status = out->Execute(pragma);
    if (absl::IsFailedPrecondition(status)) {
      return absl::FailedPreconditionError(
          absl::StrCat(path,
                       " is in use: by another controller on this state directory, or a program that reads "
                       "it; stop that, or give this one another --state"));
    }
    TANDEM_RETURN_IF_ERROR(status);
  }
  sqlite3_busy_timeout(db, kBusyMs);
  out->file_ = IdOf(path);
  out->log_ = IdOf(path + "-wal");
  return out;
}

absl::StatusOr<std::unique_ptr<Database>> Database::OpenReader(const std::string& path) {
  sqlite3* db = nullptr;
  // Opened for writing, because SQLite does not share a read-only file with the process's other connections.
  const int rc =
      sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, kOfThisProcess);
  std::unique_ptr<Database> out(new Database(db, path));
  if (rc != SQLITE_OK) {
    return OpenErrorOf(db, path);
  }
  sqlite3_extended_result_codes(db, 1);
  sqlite3_busy_timeout(db, kBusyMs);
  TANDEM_RETURN_IF_ERROR(out->Execute("PRAGMA query_only=ON"));
  return out;
}

absl::StatusOr<bool> Database::EmptyLog() {
  Statement empty = Prepare("PRAGMA wal_checkpoint(TRUNCATE)");
  const bool busy = empty.Next() && empty.Int(0) != 0;
  TANDEM_RETURN_IF_ERROR(empty.Finish());
  return !busy;
}

int64_t Database::LogBytes() const {
  struct stat found {};
  return stat((path_ + "-wal").c_str(), &found) == 0 ? found.st_size : 0;
}

void Database::KeepLog() { sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr); }

void Database::Interrupt() { sqlite3_interrupt(db_); }

Database::FileId Database::IdOf(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 ? FileId{found.st_dev, found.st_ino} : FileId{};
}

absl::Status Database::Check() { return RunCheck("PRAGMA quick_check(3)"); }

absl::Status Database::CheckIndexes(const std::string& table) {
  Statement named = Prepare("SELECT 1 FROM sqlite_master WHERE name = ?");
  const bool is_there = named.Bind(table).Next();
  TANDEM_RETURN_IF_ERROR(named.Finish());
  return is_there ? RunCheck(absl::StrCat("PRAGMA integrity_check(", table, ")")) : absl::OkStatus();
}

absl::Status Database::RunCheck(const std::string& pragma) {
  Statement check = Prepare(pragma);
  std::string found;
  while (check.Next()) {
    absl::StrAppend(&found, found.empty() ? "" : "; ", check.Bytes(0));
  }
  if (absl::Status status = check.Finish(); !status.ok() || found == "ok") {
    return status;
  }
  return absl::DataLossError(absl::StrCat(
      path_,
      " is damaged: ", absl::StrReplaceAll(found, {{"*** in database main ***\n", ""}, {"\n", "; "}})));
}

absl::Status Database::CheckInPlace() const {
  for (const auto& [path, id] : {std::pair(path_, file_), std::pair(path_ + "-wal", log_)}) {
    if (IdOf(path) != id) {
      return absl::FailedPreconditionError(
          absl::StrCat(path,
                       " was deleted, moved or replaced while this controller had it open, so nothing more "
                       "can be kept; put the state directory back from a copy, or start again with another "
                       "--state and submit the jobs again"));
    }
  }
  return absl::OkStatus();
}

Database::~Database() { sqlite3_close_v2(db_); }

absl::Status Database::Execute(const std::string& sql) {
  const int rc = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
  return rc == SQLITE_OK ? absl::OkStatus() : ErrorOf(db_, rc);
}

absl::Status WithRemedy(const absl::Status& status, absl::string_view of_damage) {
  const absl::string_view remedy =
      absl::IsDataLoss(status)            ? of_damage
      : absl::IsResourceExhausted(status) ? "make room on its file system, or give another --state"
      : absl::IsPermissionDenied(status)  ? "let this user write it, or give another --state"
                                          : "";
  return absl::Status(status.code(), absl::StrCat(status.message(), remedy.empty() ? "" : "; ", remedy));
}

}  // namespace tandem::controller
