// SPDX-License-Identifier: Apache-2.0
#include "worker/report_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/log.h"

namespace tandem::worker {

namespace {

template <typename Entries>
auto FirstUnsent(Entries& entries) {
  return std::partition_point(entries.begin(), entries.end(),
                              [](const auto& entry) { return entry.seq != 0; });
}

}  // namespace

// Norms that were sent may be dropped, because they are most likely on their way; they are lost only if the
// stream breaks now.
void ReportBuffer::Add(v1::StepReport report, absl::Time now) {
  entries_.Push({.step = std::move(report), .time = now});
}

bool ReportBuffer::HasNews() const { return (table_ && !table_sent_) || announced_drops_ != dropped(); }

absl::Time ReportBuffer::DueAt() const {
  const auto first = FirstUnsent(entries_);
  if (first == entries_.end()) {
    return HasNews() ? absl::InfinitePast() : absl::InfiniteFuture();
  }
  size_t bytes = 0;
  for (auto entry = first; entry != entries_.end(); ++entry) {
    bytes += entry->bytes;
    if (bytes >= limits_.batch_bytes) {
      return absl::InfinitePast();
    }
  }
  return first->time + limits_.batch_wait;
}

std::optional<v1::ReportBatch> ReportBuffer::Next(absl::Time now, bool flush) {
  const bool something = FirstUnsent(entries_) != entries_.end() || HasNews();
  if (!something || (!flush && now < DueAt())) {
    return std::nullopt;
  }
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
  size_t bytes = batch.table().ByteSizeLong();  // a large table goes alone: a message has 4 MiB at most
  for (auto entry = FirstUnsent(entries_); entry != entries_.end(); ++entry) {
    if (bytes > 0 && bytes + entry->bytes > limits_.batch_bytes) {
      break;
    }
    bytes += entry->bytes;
    entry->seq = last_seq_;
    *batch.add_reports() = entry->step;
  }
  unacked_through_ = last_seq_;
  return batch;
}

void ReportBuffer::Acked(uint64_t seq) {
  while (!entries_.empty() && entries_.front().seq != 0 && entries_.front().seq <= seq) {
    entries_.PopFront();
  }
  if (seq >= unacked_through_) {
    unacked_through_ = 0;
  }
}

void ReportBuffer::Restart() {
  for (Entry& entry : entries_) {
    entry.seq = 0;
  }
  table_sent_ = false;
  announced_drops_ = 0;
  unacked_through_ = 0;
}

ReportQueue::Attempt& ReportQueue::Find(const AttemptKey& attempt) {
  return attempts_.try_emplace(attempt, Attempt{.buffer = ReportBuffer(IdOf(attempt), limits_)})
      .first->second;
}

void ReportQueue::Add(const AttemptKey& attempt, v1::StepReport report) {
  const absl::MutexLock lock(&mu_);
  Find(attempt).buffer.Add(std::move(report), clock_.Now());
  changed_.NotifyAll();
}

void ReportQueue::AddTable(const AttemptKey& attempt, v1::ParameterTable table) {
  const absl::MutexLock lock(&mu_);
  Find(attempt).buffer.AddTable(std::move(table));
  changed_.NotifyAll();
}

void ReportQueue::AddRecovered(const AttemptKey& attempt, std::vector<v1::StepReport> reports) {
  // A controller without the job acknowledges no report of it. (If it refused them, that would end the
  // stream for all other reports.)
  constexpr absl::Duration kKeepRecovered = absl::Minutes(10);
  const absl::MutexLock lock(&mu_);
  Attempt& found = Find(attempt);
  for (v1::StepReport& report : reports) {
    found.buffer.Add(std::move(report), clock_.Now());
  }
  found.flush = true;
  found.drop_at = clock_.Now() + kKeepRecovered;
  changed_.NotifyAll();
}

void ReportQueue::Ended(const AttemptKey& attempt) {
  const absl::MutexLock lock(&mu_);
  if (const auto it = attempts_.find(attempt); it != attempts_.end()) {
    it->second.flush = true;
  }
  changed_.NotifyAll();
}

void ReportQueue::Forget(const AttemptKey& attempt) {
  constexpr absl::Duration kKeep = absl::Minutes(1);
  const absl::MutexLock lock(&mu_);
  const absl::Time now = clock_.Now();
  if (const auto it = attempts_.find(attempt); it != attempts_.end()) {
    it->second.drop_at = now + kKeep;
  }
  DropForgotten(now);
}

std::optional<v1::ReportBatch> ReportQueue::Next() {
  const absl::MutexLock lock(&mu_);
  while (!awake_) {
    const absl::Time now = clock_.Now();
    DropForgotten(now);
    absl::Time due = absl::InfiniteFuture();
    for (auto& [key, attempt] : attempts_) {
      if (std::optional<v1::ReportBatch> batch = attempt.buffer.Next(now, attempt.flush)) {
        return batch;
      }
      due = std::min(due, attempt.buffer.DueAt());
    }
    changed_.WaitFor(mu_, due - now);
  }
  return std::nullopt;
}

void ReportQueue::Wake() {
  const absl::MutexLock lock(&mu_);
  awake_ = true;
  changed_.NotifyAll();
}

void ReportQueue::Restart() {
  const absl::MutexLock lock(&mu_);
  awake_ = false;
  for (auto& [key, attempt] : attempts_) {
    attempt.buffer.Restart();
  }
}

void ReportQueue::Acked(const v1::ReportAck& ack) {
  const absl::MutexLock lock(&mu_);
  const auto it = attempts_.find(KeyOf(ack.id()));
  if (it != attempts_.end()) {
    it->second.buffer.Acked(ack.seq());
  }
  DropForgotten(clock_.Now());
  changed_.NotifyAll();
}

bool ReportQueue::WaitUntilEmpty(absl::Duration limit) {
  const absl::MutexLock lock(&mu_);
  const absl::Time deadline = clock_.Now() + limit;
  while (!IsEmpty()) {
    const absl::Time now = clock_.Now();
    if (now >= deadline) {
      return false;
    }
    changed_.WaitFor(mu_, deadline - now);
  }
  return true;
}

void ReportQueue::DropForgotten(absl::Time now) {
  std::erase_if(attempts_, [&](const auto& entry) {
    const auto& [key, attempt] = entry;
    if (attempt.drop_at == absl::InfiniteFuture()) {
      return false;
    }
    if (!attempt.buffer.empty() && now >= attempt.drop_at) {
      platform::Log(platform::LogLevel::kWarning,
                    "reports that the controller has not taken in time are dropped",
                    {{"job", key.job}, {"attempt", absl::StrCat(key.attempt)}});
    }
    return attempt.buffer.empty() || now >= attempt.drop_at;
  });
}

bool ReportQueue::IsEmpty() const {
  return std::all_of(attempts_.begin(), attempts_.end(),
                     [](const auto& entry) { return entry.second.buffer.empty(); });
}

}  // namespace tandem::worker
