// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "link/bounded_reports.h"
#include "platform/clock.h"
#include "platform/steady_condition.h"
#include "tandem/v1/workers.pb.h"
#include "worker/state.h"

namespace tandem::worker {

struct ReportLimits {
  size_t buffer_bytes = size_t{64} << 20;  // of one attempt, serialised
  size_t batch_bytes = size_t{256} << 10;
  absl::Duration batch_wait = absl::Milliseconds(100);
};

// The reports of one attempt that the controller has not acknowledged. Training never waits for the
// controller: reports beyond the limit are dropped (link/bounded_reports.h). Not thread-safe.
class ReportBuffer {
 public:
  ReportBuffer(v1::AttemptId id, ReportLimits limits)
      : id_(std::move(id)), limits_(limits), entries_(limits.buffer_bytes) {}

  void AddTable(v1::ParameterTable table) { table_ = std::move(table); }
  void Add(v1::StepReport report, absl::Time now);

  // Returns the next batch if one is due: because enough reports wait, the oldest has waited for batch_wait,
  // or `flush` is true. A batch has reports, a table or new counts of drops, and about batch_bytes at most
  // unless a single item is larger. Its items stay in the buffer until Acked.
  std::optional<v1::ReportBatch> Next(absl::Time now, bool flush);

  // When Next without `flush` will return a batch; infinite: only after more reports were added.
  absl::Time DueAt() const;

  void Acked(uint64_t seq);

  // Called for a new stream: everything that is not acknowledged will be sent again, and the table too.
  void Restart();

  // Whether everything was sent and acknowledged.
  bool empty() const { return entries_.empty() && unacked_through_ == 0 && !HasNews(); }
  size_t bytes() const { return entries_.bytes(); }
  int64_t dropped_norms() const { return entries_.dropped_norms(); }
  int64_t dropped_reports() const { return entries_.dropped_reports(); }

 private:
  struct Entry {
    v1::StepReport step;
    absl::Time time;
    size_t bytes = 0;
    uint64_t seq = 0;  // of its batch in this stream; 0: not sent yet

    v1::StepReport* report() { return &step; }
  };

  // Whether there is a table, or counts of drops, that no batch has had yet.
  bool HasNews() const;
  int64_t dropped() const { return dropped_norms() + dropped_reports(); }

  const v1::AttemptId id_;
  const ReportLimits limits_;
  link::BoundedReports<Entry> entries_;  // sent ones first
  std::optional<v1::ParameterTable> table_;
  bool table_sent_ = false;
  int64_t announced_drops_ = 0;  // dropped() in the last batch
  uint64_t last_seq_ = 0;
  uint64_t unacked_through_ = 0;  // the last batch sent and not acknowledged; 0: none
};

// The reports of all attempts on their way from the trainers to the controller. They bypass the core.
// Thread-safe.
class ReportQueue {
 public:
  ReportQueue(const platform::Clock& clock, ReportLimits limits) : clock_(clock), limits_(limits) {}

  // Add a report or a table of a trainer. Never wait for the controller.
  void Add(const AttemptKey& attempt, v1::StepReport report) ABSL_LOCKS_EXCLUDED(mu_);
  void AddTable(const AttemptKey& attempt, v1::ParameterTable table) ABSL_LOCKS_EXCLUDED(mu_);

  // Adds reports of an attempt that ended with an earlier daemon. The controller may have some of them
  // already; it keeps one of each step. Reports that it has not acknowledged within ten minutes are dropped,
  // which is logged.
  void AddRecovered(const AttemptKey& attempt, std::vector<v1::StepReport> reports) ABSL_LOCKS_EXCLUDED(mu_);

  // Notes that no more reports will come, so that the rest is sent without waiting.
  void Ended(const AttemptKey& attempt) ABSL_LOCKS_EXCLUDED(mu_);

  // Called when the controller has forgotten the attempt: frees its buffer once all is acknowledged, or after
  // a minute.
  void Forget(const AttemptKey& attempt) ABSL_LOCKS_EXCLUDED(mu_);

  // Called by the one thread that sends. Blocks until a batch is due, and returns it; returns nullopt once
  // Wake was called.
  std::optional<v1::ReportBatch> Next() ABSL_LOCKS_EXCLUDED(mu_);
  void Wake() ABSL_LOCKS_EXCLUDED(mu_);
  // Called for a new stream: everything that is not acknowledged will be sent again. Undoes Wake.
  void Restart() ABSL_LOCKS_EXCLUDED(mu_);
  void Acked(const v1::ReportAck& ack) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until everything is acknowledged; false if that takes longer than `limit`.
  bool WaitUntilEmpty(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Attempt {
    ReportBuffer buffer;
    bool flush = false;
    absl::Time drop_at = absl::InfiniteFuture();
  };

  Attempt& Find(const AttemptKey& attempt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropForgotten(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsEmpty() const ABSL_SHARED_LOCKS_REQUIRED(mu_);

  const platform::Clock& clock_;
  const ReportLimits limits_;
  mutable absl::Mutex mu_;
  platform::SteadyCondition changed_;
  std::map<AttemptKey, Attempt> attempts_ ABSL_GUARDED_BY(mu_);
  bool awake_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tandem::worker
