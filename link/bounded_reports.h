// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "tandem/v1/report.pb.h"

namespace tandem::link {

// A queue of reports (and possibly other messages) for a reader that may be slow or absent. If the reports
// exceed `max_bytes`, the queue drops the norms of the oldest reports, then, if that is not enough, the
// oldest reports. It counts both. Not thread-safe.
//
// Entry must have a member `size_t bytes`, set by the queue, and a method `v1::StepReport* report()`, which
// returns null for another message; that does not count towards `max_bytes` and is never dropped.
template <typename Entry>
class BoundedReports {
 public:
  explicit BoundedReports(size_t max_bytes) : max_bytes_(max_bytes) {}

  void Push(Entry entry) {
    const v1::StepReport* const report = entry.report();
    entry.bytes = report == nullptr ? 0 : report->ByteSizeLong();
    bytes_ += entry.bytes;
    entries_.push_back(std::move(entry));
    MakeRoom();
  }

  Entry PopFront() {
    Entry entry = std::move(entries_.front());
    entries_.pop_front();
    bytes_ -= entry.bytes;
    return entry;
  }

  void Clear() {
    entries_.clear();
    bytes_ = 0;
  }

  bool empty() const { return entries_.empty(); }
  Entry& front() { return entries_.front(); }
  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

  size_t bytes() const { return bytes_; }  // of all reports, serialised
  int64_t dropped_norms() const { return dropped_norms_; }
  int64_t dropped_reports() const { return dropped_reports_; }

 private:
  void MakeRoom() {
    for (auto entry = entries_.begin(); entry != entries_.end() && bytes_ > max_bytes_; ++entry) {
      v1::StepReport* const report = entry->report();
      if (report != nullptr && report->has_norms()) {
        report->clear_norms();
        bytes_ -= entry->bytes;
        entry->bytes = report->ByteSizeLong();
        bytes_ += entry->bytes;
        ++dropped_norms_;
      }
    }
    for (auto entry = entries_.begin(); entry != entries_.end() && bytes_ > max_bytes_;) {
      if (entry->report() == nullptr) {
        ++entry;
      } else {
        bytes_ -= entry->bytes;
        entry = entries_.erase(entry);
        ++dropped_reports_;
      }
    }
  }

  const size_t max_bytes_;
  std::deque<Entry> entries_;
  size_t bytes_ = 0;
  int64_t dropped_norms_ = 0;
  int64_t dropped_reports_ = 0;
};

}  // namespace tandem::link
