// SPDX-License-Identifier: Apache-2.0
#include "worker/report_buffer.h"

#include <utility>

namespace tandem::worker {

void ReportBuffer::Add(v1::StepReport report, absl::Time now) {
  const size_t bytes = report.ByteSizeLong();
  entries_.push_back({.report = std::move(report), .bytes = bytes, .time = now});
  bytes_ += bytes;
  unsent_bytes_ += bytes;
  Shrink();
}

void ReportBuffer::Shrink() {
  for (size_t i = 0; i < entries_.size() && bytes_ > limits_.buffer_bytes; ++i) {
    Entry& entry = entries_[i];
    if (!entry.report.has_norms()) continue;
    entry.report.clear_norms();
    const size_t bytes = entry.report.ByteSizeLong();
    bytes_ -= entry.bytes - bytes;
    if (entry.seq == 0) unsent_bytes_ -= entry.bytes - bytes;
    entry.bytes = bytes;
    // Sent norms are most likely on their way; only if the stream breaks now are they lost.
    ++dropped_norms_;
  }
  while (bytes_ > limits_.buffer_bytes) {
    const Entry& entry = entries_.front();
    bytes_ -= entry.bytes;
    if (entry.seq == 0) {
      unsent_bytes_ -= entry.bytes;
    } else {
      --num_sent_;
    }
    entries_.pop_front();
    ++dropped_reports_;
  }
}

bool ReportBuffer::HasNews() const {
  return (table_ && !table_sent_) || told_drops_ != dropped_norms_ + dropped_reports_;
}

absl::Time ReportBuffer::DueAt() const {
  if (num_sent_ == entries_.size()) return HasNews() ? absl::InfinitePast() : absl::InfiniteFuture();
  if (unsent_bytes_ >= limits_.batch_bytes) return absl::InfinitePast();
  return entries_[num_sent_].time + limits_.batch_wait;
}

std::optional<v1::ReportBatch> ReportBuffer::Next(absl::Time now, bool flush) {
  const bool something = num_sent_ < entries_.size() || HasNews();
  if (!something || (!flush && now < DueAt())) return std::nullopt;
  v1::ReportBatch batch;
  *batch.mutable_id() = id_;
  batch.set_seq(++last_seq_);
  batch.set_dropped_norms(dropped_norms_);
  batch.set_dropped_reports(dropped_reports_);
  told_drops_ = dropped_norms_ + dropped_reports_;
  if (table_ && !table_sent_) {
    *batch.mutable_table() = *table_;
    table_sent_ = true;
  }
  size_t bytes = batch.table().ByteSizeLong();  // a large one goes alone: a message holds 4 MiB
  while (num_sent_ < entries_.size()) {
    Entry& entry = entries_[num_sent_];
    if (bytes > 0 && bytes + entry.bytes > limits_.batch_bytes) break;
    bytes += entry.bytes;
    unsent_bytes_ -= entry.bytes;
    entry.seq = last_seq_;
    *batch.add_reports() = entry.report;
    ++num_sent_;
  }
  unacked_through_ = last_seq_;
  return batch;
}

void ReportBuffer::Acked(uint64_t seq) {
  while (num_sent_ > 0 && entries_.front().seq <= seq) {
    bytes_ -= entries_.front().bytes;
    entries_.pop_front();
    --num_sent_;
  }
  if (seq >= unacked_through_) unacked_through_ = 0;
}

void ReportBuffer::Restart() {
  for (Entry& entry : entries_) entry.seq = 0;
  num_sent_ = 0;
  unsent_bytes_ = bytes_;
  table_sent_ = false;
  told_drops_ = 0;
  unacked_through_ = 0;
}

}  // namespace tandem::worker
