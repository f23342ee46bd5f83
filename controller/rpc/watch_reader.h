// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/metrics/progress_board.h"
#include "controller/store/history.h"
#include "controller/store/store.h"
#include "tandem/v1/jobs.pb.h"

namespace tandem::controller {

// Yields what one Watch sends, in order: a snapshot of every job that matches, `synced`, then events, each
// followed by its job, and reports if the client asked for them. It reads store and history a page at a time
// (or one report with norms, which may be large) and queues nothing else, so a client may be slow. A client
// that returns with its last cursor continues without a gap or a repeat. Not thread-safe.
class WatchReader {
 public:
  // NotFound if there is no such job; OutOfRange for a cursor of another store.
  static absl::StatusOr<std::unique_ptr<WatchReader>> Open(Store& store, History& history,
                                                           const ProgressBoard& progress,
                                                           const v1::WatchRequest& request, absl::Time now);

  // Returns the next response; nullopt if there is none for now.
  absl::StatusOr<std::optional<v1::WatchResponse>> Next(absl::Time now);

  // When Next may have a response although store and history do not change: a report that min_interval holds
  // back, or the progress of the job.
  absl::Time due() const { return due_; }

 private:
  struct Reports {
    History::Position position;
    absl::Time last_sent = absl::InfinitePast();
    std::string table;                          // digest of the table that was sent last
    absl::Time ended = absl::InfiniteFuture();  // when the end of the job was sent
  };

  WatchReader(Store& store, History& history, const ProgressBoard& progress, v1::WatchRequest request)
      : store_(store), history_(history), progress_(progress), request_(std::move(request)) {}

  absl::Status Begin(absl::Time now);
  absl::Status Resume(absl::Time now);
  // Add a response about a job to the page; AddWithCursor with the cursor as it is now.
  v1::WatchResponse& Add(const std::string& job_id);
  v1::WatchResponse& AddWithCursor(const std::string& job_id);
  absl::Status ReadSnapshot(absl::Time now);
  absl::Status ReadEvents(absl::Time now);
  absl::Status ReadReports(absl::Time now);
  void LookAtProgress(absl::Time now);
  void Follow(const v1::Job& job, absl::Time now);
  absl::Status AddChanged(const std::string& job_id, absl::Time now);
  std::string Cursor() const;

  Store& store_;
  History& history_;
  const ProgressBoard& progress_;
  const v1::WatchRequest request_;
  std::string job_id_;  // empty: all
  absl::Duration min_interval_;

  enum class Phase { kSnapshot, kSynced, kChanges };
  Phase phase_ = Phase::kSnapshot;
  int64_t snapshot_before_ = 0;
  int64_t seq_ = 0;           // of the last event that was read
  bool changed_due_ = false;  // the job of that event must be sent next
  std::map<std::string, Reports> reports_;
  std::string last_read_;  // the job whose reports came last
  bool quiet_ = false;     // the last progress that was sent was that of a job that stood still
  absl::Time next_look_ = absl::InfinitePast();
  std::deque<v1::WatchResponse> page_;
  absl::Time due_ = absl::InfiniteFuture();
};

}  // namespace tandem::controller
