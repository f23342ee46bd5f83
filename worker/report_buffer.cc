// SPDX-License-Identifier: Apache-2.0
#include "worker/report_buffer.h"

#include <algorithm>
#include <utility>

namespace tandem::worker {
namespace {

template <typename Entries>
auto FirstUnsent(Entries& entries) {
  return std::partition_point(entries.begin(), entries.end(),
                              [](const auto& entry) { return entry.seq != 0; });
}

}  // namespace

// Sent norms that are dropped are most likely on their way; only if the stream breaks now are they lost.
void ReportBuffer::Add(v1::StepReport report, absl::Time now) {
  entries_.Push({.step = std::move(report), .time = now});
}

bool ReportBuffer::HasNews() const { return (table_ && !table_sent_) || announced_drops_ != dropped(); }

absl::Time ReportBuffer::DueAt() const {
  const auto first = FirstUnsent(entries_);
  if (first == entries_.end()) return HasNews() ? absl::InfinitePast() : absl::InfiniteFuture();
  size_t bytes = 0;
  for (auto entry = first; entry != entries_.end(); ++entry) {
    bytes += entry->bytes;
    if (bytes >= limits_.batch_bytes) return absl::InfinitePast();
  }
  return first->time + limits_.batch_wait;
}

std::optional<v1::ReportBatch> ReportBuffer::Next(absl::Time now, bool flush) {
  const bool something = FirstUnsent(entries_) != entries_.end() || HasNews();
  if (!something || (!flush && now < DueAt())) return std::nullopt;
  v1::ReportBatch batch;
  *batch.mutable_id() = id_;
  batch.set_seq(++last_seq_);
  batch.set_dropped_norms(dropped_norms());
  batch.set_dropped_reports(dropped_reports());
  announced_drops_ = dropped();
  if (table_ && !table_sent_) {
    *batch.mutable_table() = *table_;
    table_sent_ = true;
  }
  size_t bytes = batch.table().ByteSizeLong();  // a large one goes alone: a message holds 4 MiB
  for (auto entry = FirstUnsent(entries_); entry != entries_.end(); ++entry) {
    if (bytes > 0 && bytes + entry->bytes > limits_.batch_bytes) break;
    bytes += entry->bytes;
    entry->seq = last_seq_;
    *batch.add_reports() = entry->step;
  }
  unacked_through_ = last_seq_;
  return batch;
}

void ReportBuffer::Acked(uint64_t seq) {
  while (!entries_.empty() && entries_.front().seq != 0 && entries_.front().seq <= seq) entries_.PopFront();
  if (seq >= unacked_through_) unacked_through_ = 0;
}

void ReportBuffer::Restart() {
  for (Entry& entry : entries_) entry.seq = 0;
  table_sent_ = false;
  announced_drops_ = 0;
  unacked_through_ = 0;
}

}  // namespace tandem::worker
