// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/regular_file.h"
#include "tandem/v1/state.pb.h"

namespace tandem::controller {

// A second copy (DIR/controller.journal) of the events that were committed since the write-ahead log was last
// moved to the database's main file. SQLite takes the first damaged frame of that log for the end of the log:
// after a flipped bit, or with the log removed, events are missing without an error. The journal tells which,
// and has them.
//
// A line "tandem-journal 1 STORE TERM SEQ DIGEST", then for each commit a line "commit LENGTH DIGEST" and
// LENGTH bytes (a ListEventsResponse). Digests are XXH3-128 of what precedes them in the first line, and of
// the bytes. The journal is written after the commit and is not synced: what it loses in a crash of the
// machine was synced in the database. Not thread-safe.
class Journal {
 public:
  struct Content {
    std::string store_id;
    int64_t term = 0;
    int64_t seq = 0;                // of the last event before these
    std::vector<v1::Event> events;  // in order, up to the first that cannot be read
    bool is_cut = false;            // something follows that cannot be read
  };

  explicit Journal(std::string path) : path_(std::move(path)) {}
  // Reads the journal of a former controller; nullopt if there is none. DataLoss if its first line cannot be
  // read.
  absl::StatusOr<std::optional<Content>> Read() const;

  // Begins a new journal in place of the former one. Call when all events up to `seq` are safe in the main
  // file.
  absl::Status Begin(const std::string& store_id, int64_t term, int64_t seq);

  // Adds the events of a commit. Does nothing before Begin, and after an error until the next Begin.
  absl::Status Append(const std::vector<v1::Event>& events);

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  platform::Descriptor file_;  // to append to
};

// The number of commits of a database, in a file beside it: one line "tandem-commits 1 COUNT DIGEST" of a
// fixed length (COUNT in 20 digits, DIGEST the XXH3-128 of what precedes it). It is written after a commit
// and is not synced, as the database's log is not: a crash of the machine may take commits from either. Not
// thread-safe.
class CommitCount {
 public:
  // Reads the number; nullopt if there is no such file. DataLoss if the file is damaged.
  static absl::StatusOr<std::optional<int64_t>> Read(const std::string& path);

  // Opens the file, and creates it if there is none. Call before Write.
  absl::Status Open(const std::string& path);
  absl::Status Write(int64_t count);

  int64_t count() const { return count_; }

 private:
  std::string path_;
  platform::Descriptor file_;
  int64_t count_ = 0;  // of the last Write
};

}  // namespace tandem::controller
