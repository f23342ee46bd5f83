#include "worker/report_queue.h"

#include <algorithm>
#include <utility>

namespace tandem::worker {

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

void ReportQueue::Ended(const AttemptKey& attempt) {
  const absl::MutexLock lock(&mu_);
  if (const auto it = attempts_.find(attempt); it != attempts_.end()) it->second.flush = true;
  changed_.NotifyAll();
}

void ReportQueue::Forget(const AttemptKey& attempt) {
  constexpr absl::Duration kKeep = absl::Minutes(1);
  const absl::MutexLock lock(&mu_);
  const absl::Time now = clock_.Now();
  if (const auto it = attempts_.find(attempt); it != attempts_.end()) it->second.drop_at = now + kKeep;
  DropForgotten(now);
}

std::optional<v1::ReportBatch> ReportQueue::Next() {
  const absl::MutexLock lock(&mu_);
  while (!awake_) {
    const absl::Time now = clock_.Now();
    DropForgotten(now);
    absl::Time due = absl::InfiniteFuture();
    for (auto& [key, attempt] : attempts_) {
      if (std::optional<v1::ReportBatch> batch = attempt.buffer.Next(now, attempt.flush)) return batch;
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
  for (auto& [key, attempt] : attempts_) attempt.buffer.Restart();
}

void ReportQueue::Acked(const v1::ReportAck& ack) {
  const absl::MutexLock lock(&mu_);
  const auto it = attempts_.find(KeyOf(ack.id()));
  if (it != attempts_.end()) it->second.buffer.Acked(ack.seq());
  DropForgotten(clock_.Now());
  changed_.NotifyAll();
}

bool ReportQueue::WaitUntilEmpty(absl::Duration limit) {
  const absl::MutexLock lock(&mu_);
  const absl::Time deadline = clock_.Now() + limit;
  while (!IsEmpty()) {
    const absl::Time now = clock_.Now();
    if (now >= deadline) return false;
    changed_.WaitFor(mu_, deadline - now);
  }
  return true;
}

void ReportQueue::DropForgotten(absl::Time now) {
  std::erase_if(attempts_, [&](const auto& entry) {
    const Attempt& attempt = entry.second;
    return attempt.drop_at != absl::InfiniteFuture() && (attempt.buffer.empty() || now >= attempt.drop_at);
  });
}

bool ReportQueue::IsEmpty() const {
  return std::all_of(attempts_.begin(), attempts_.end(),
                     [](const auto& entry) { return entry.second.buffer.empty(); });
}

}  // namespace tandem::worker
