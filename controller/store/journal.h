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

// The events that were committed since the database was last whole in its main file, a second time
// (DIR/controller.journal). SQLite takes the first damaged frame of its write-ahead log for the log's end, so
// a flipped bit or a log that was removed makes a smaller database, without an error. With the journal, what
// is missing is known, and is there.
//
// A line "tandem-journal 1 STORE TERM SEQ DIGEST", then for each commit a line "commit LENGTH DIGEST" and
// LENGTH bytes (a ListEventsResponse). Digests are XXH3-128 of what precedes them in the first line, and of
// the bytes. It is written after the commit and is not synced: what a crash of the machine takes from it was
// synced in the database. Not thread-safe.
class Journal {
 public:
  struct Content {
    std::string store_id;
    int64_t term = 0;
    int64_t seq = 0;                // of the last event before these
    std::vector<v1::Event> events;  // in order, as far as they can be read
    bool is_cut = false;            // something follows that cannot be read
  };

  explicit Journal(std::string path) : path_(std::move(path)) {}
  // What a former controller left; nullopt if there is no journal. DataLoss if its first line cannot be read.
  absl::StatusOr<std::optional<Content>> Read() const;

  // Begins a new journal in place of the former one: all events up to `seq` are safe in the main file.
  absl::Status Begin(const std::string& store_id, int64_t term, int64_t seq);

  // Adds the events of a commit. Does nothing before Begin, and after an error until the next Begin.
  absl::Status Append(const std::vector<v1::Event>& events);

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  platform::Descriptor file_;  // to append to
};

}  // namespace tandem::controller
