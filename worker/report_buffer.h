// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/time/time.h"
#include "tandem/v1/workers.pb.h"

namespace tandem::worker {

struct ReportLimits {
  size_t buffer_bytes = size_t{64} << 20;  // of one attempt, as serialised
  size_t batch_bytes = size_t{256} << 10;
  absl::Duration batch_wait = absl::Milliseconds(100);
};

// The reports of one attempt that the controller has not acknowledged. Training never waits for it: what does
// not fit is dropped, norms oldest first, then whole reports oldest first, and both are counted. Not
// thread-safe.
class ReportBuffer {
 public:
  ReportBuffer(v1::AttemptId id, ReportLimits limits) : id_(std::move(id)), limits_(limits) {}

  void AddTable(v1::ParameterTable table) { table_ = std::move(table); }
  void Add(v1::StepReport report, absl::Time now);

  // The next batch, if one is due: full, old enough, or `flush`. Of at least one report, a table or new
  // counts; about batch_bytes at most, or one of these that is larger. It stays in the buffer until Acked.
  std::optional<v1::ReportBatch> Next(absl::Time now, bool flush);

  // When Next without `flush` gives a batch; infinite: when more reports come.
  absl::Time DueAt() const;

  void Acked(uint64_t seq);

  // The stream is a new one: everything not acknowledged is sent again, the table too.
  void Restart();

  // Nothing is waiting to be sent or acknowledged.
  bool empty() const { return entries_.empty() && unacked_through_ == 0 && !HasNews(); }
  size_t bytes() const { return bytes_; }
  int64_t dropped_norms() const { return dropped_norms_; }
  int64_t dropped_reports() const { return dropped_reports_; }

 private:
  struct Entry {
    v1::StepReport report;
    size_t bytes = 0;
    absl::Time time;
    uint64_t seq = 0;  // of the batch that carried it in this stream; 0: not sent
  };

  // A table or counts that no batch has carried yet.
  bool HasNews() const;
  void Shrink();

  const v1::AttemptId id_;
  const ReportLimits limits_;
  std::deque<Entry> entries_;  // sent ones first
  size_t num_sent_ = 0;
  size_t bytes_ = 0;
  size_t unsent_bytes_ = 0;
  std::optional<v1::ParameterTable> table_;
  bool table_sent_ = false;
  int64_t dropped_norms_ = 0;
  int64_t dropped_reports_ = 0;
  int64_t told_drops_ = 0;
  uint64_t last_seq_ = 0;
  uint64_t unacked_through_ = 0;  // the last batch sent and not acknowledged; 0: none
};

}  // namespace tandem::worker
