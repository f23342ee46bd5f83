// SPDX-License-Identifier: Apache-2.0
#include "controller/metrics/metrics.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "controller/core/placement.h"
#include "proto/reasons.h"
#include "proto/time.h"

namespace tandem::controller {
namespace {

constexpr absl::Duration kKeepAfterEnd = absl::Minutes(5);
constexpr size_t kMostEndedJobs = 50;
constexpr size_t kMostPurposes = 16;  // of a job's communicators; programs have half as many

// Drops, by job name, the series of the jobs that ended long ago, and of the other ended jobs all but the
// newest.
template <typename Series>
void DropEnded(std::map<std::string, Series>& series, absl::Time now) {
  std::vector<std::pair<absl::Time, std::string>> ended;
  for (const auto& [name, of_job] : series) {
    if (of_job.ended != absl::InfiniteFuture()) {
      ended.emplace_back(of_job.ended, name);
    }
  }
  std::sort(ended.rbegin(), ended.rend());  // newest first
  for (size_t i = 0; i < ended.size(); ++i) {
    if (i >= kMostEndedJobs || now - ended[i].first > kKeepAfterEnd) {
      series.erase(ended[i].second);
    }
  }
}

// Returns nullopt until all ranks of the current attempt have reported their needs. The job may have ended
// since.
std::optional<JobNeeds> NeedsOf(const State& state, const v1::Job& job) {
  if (job.attempts().empty()) {
    return std::nullopt;
  }
  JobNeeds out{.total_bytes = std::numeric_limits<int64_t>::max()};
  for (const v1::RankSlot& slot : Current(job).slots()) {
    const v1::RankStatus* const status = StatusOf(state, slot, CurrentAttempt(job));
    if (status == nullptr || !status->has_ready()) {
      return std::nullopt;
    }
    const v1::Ready& ready = status->ready();
    out.arena_bytes = std::max(out.arena_bytes, ready.arena_bytes());
    out.used_bytes = std::max(out.used_bytes, ready.device_used_bytes());
    out.total_bytes = std::min(out.total_bytes, ready.device_total_bytes());
    for (const auto& [purpose, bytes] : ready.sent_bytes()) {
      if (bytes > 0 && (out.sent_bytes.contains(purpose) || out.sent_bytes.size() < kMostPurposes)) {
        out.sent_bytes[purpose] += bytes;
      }
    }
  }
  return out;
}

}  // namespace

void Metrics::Report(const std::string& job_id, const std::string& job_name, const v1::StepReport& report,
                     absl::Time job_ended) {
  const absl::MutexLock lock(&mu_);
  if (const auto known = known_.find(job_name); known != known_.end()) {
    if (known->second.job.id() == job_id) {
      job_ended = std::min(job_ended, known->second.ended);
    } else if (known->second.ended >= job_ended) {
      return;  // that job is the newer one
    }
  }
  if (clock_.Now() - job_ended > kKeepAfterEnd) {
    return;
  }
  if (const auto before = training_.find(job_name);
      before != training_.end() && before->second.job_id != job_id) {
    if (before->second.ended > job_ended) {
      return;  // as above
    }
    training_.erase(before);
  }
  Training& training = training_[job_name];
  training.job_id = job_id;
  training.ended = std::min(training.ended, job_ended);
  if (report.attempt() < training.last.attempt() ||
      (report.attempt() == training.last.attempt() && report.step() <= training.last.step())) {
    return;  // it was sent twice, or late
  }
  training.last = report;
  training.last.clear_norms();
  training.tokens += static_cast<double>(report.tokens());
  training.steps[report.attempt()] += report.step() > 0 ? 1 : 0;  // 0 is the validation before the first
  training.nonfinite_steps += report.nonfinite() > 0 ? 1 : 0;
  training.spikes += report.scalars().contains("spike_limit") ? 1 : 0;
  training.seconds.Observe(report.seconds());
}

Metrics::Known& Metrics::Update(const v1::Job& job) {
  Known& known = known_[job.name()];
  if (known.job.id() != job.id()) {
    known = {};
  }
  known.job = job;
  known.job.clear_submitted();
  known.job.clear_resolved();
  known.sequence_length = job.resolved().training().sequence_length();
  return known;
}

void Metrics::Reported(const State& state, const AttemptKey& attempt) {
  const auto it = state.jobs.find(attempt.job);
  if (it == state.jobs.end() || it->second.job.attempt() != attempt.attempt) {
    return;
  }
  const v1::Job& job = it->second.job;
  const absl::MutexLock lock(&mu_);
  if (const auto known = known_.find(job.name()); known != known_.end() &&
                                                  known->second.job.id() == job.id() &&
                                                  known->second.needs.contains(attempt.attempt)) {
    return;
  }
  if (std::optional<JobNeeds> needs = NeedsOf(state, job); needs.has_value()) {
    Update(job).needs[attempt.attempt] = *std::move(needs);
  }
}

void Metrics::JobEnded(const v1::Job& job) {
  const absl::MutexLock lock(&mu_);
  if (job.attempts_size() > 0) {
    Update(job).ended = clock_.Now();
  }
  const auto it = training_.find(job.name());
  if (it != training_.end() && it->second.job_id == job.id()) {
    it->second.ended = clock_.Now();
  }
  Prune();
}

void Metrics::Prune() const {
  DropEnded(training_, clock_.Now());
  DropEnded(known_, clock_.Now());
}

void Metrics::RpcStarted(const std::string& method) {
  const absl::MutexLock lock(&mu_);
  ++started_[method];
}

void Metrics::RpcHandled(const std::string& method, const std::string& code, absl::Duration took) {
  const absl::MutexLock lock(&mu_);
  ++handled_[{method, code}];
  const std::vector<double> bounds = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10};
  took_.try_emplace(method, bounds).first->second.Observe(absl::ToDoubleSeconds(took));
}

void Metrics::Look(const State& state) {
  progress_.Look(state);
  std::map<std::string, absl::Time> seen;
  for (const auto& [name, worker] : state.workers) {
    if (last_seen_) {
      seen[name] = worker.connected ? std::max(worker.since, last_seen_(name)) : worker.since;
    }
  }
  const absl::MutexLock lock(&mu_);
  seen_ = std::move(seen);
  jobs_.clear();
  beyond_capacity_ = 0;
  for (const auto& [id, entry] : state.jobs) {
    ++jobs_[entry.job.state()];
    beyond_capacity_ +=
        entry.job.state() == v1::JOB_STATE_QUEUED && entry.job.reason() == proto::ReasonCode("BeyondCapacity")
            ? 1
            : 0;
    if (IsTerminal(entry.job.state())) {
      continue;  // JobEnded has reported it
    }
    if (entry.job.attempts_size() > 0) {
      Update(entry.job);
    }
  }
  for (auto& [name, training] : training_) {
    if (!state.jobs.contains(training.job_id)) {  // the reader of its reports may not know that it has ended
      training.ended = std::min(training.ended, clock_.Now());
    }
  }
  connected_ = schedulable_ = away_ = 0;
  for (const auto& [name, worker] : state.workers) {
    ++(worker.connected ? connected_ : away_);
    schedulable_ += WhyNotSchedulable(state, worker).empty() ? 1 : 0;
  }
  last_seq_ = state.last_seq;
}

void Metrics::CertificateEnds(absl::Time time) {
  const absl::MutexLock lock(&mu_);
  certificate_ends_ = time;
}

}  // namespace tandem::controller
