// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "controller/core/progress.h"
#include "controller/core/state.h"
#include "controller/metrics/progress_board.h"
#include "platform/clock.h"

namespace tandem::controller {

// The needs of the ranks of one attempt, as they reported them when they became ready (v1.Ready).
struct JobNeeds {
  int64_t arena_bytes = 0;  // of the largest
  int64_t used_bytes = 0;   // of the fullest device
  int64_t total_bytes = 0;  // of the smallest device
  // Sent in a step by all ranks together, by purpose; at most 16 purposes.
  std::map<std::string, double> sent_bytes;
};

// Collects `metrics` and returns them in Prometheus' text format, whose content type is kMetricsType.
inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";
std::string MetricsText(const prometheus::Collectable& metrics);

// All metrics of the controller. The series of a job are labelled job_name. They are dropped five minutes
// after its end, or earlier if 50 jobs have ended since. Thread-safe.
//
// Look samples only what is true at the moment: how many jobs are in each state, which workers are connected,
// how far the ranks are. What happens once is reported by a call of its own, so that nothing between two
// looks is lost: a step (Report), what ranks need (Reported), the end of a job (JobEnded).
class Metrics : public prometheus::Collectable {
  using Bounds = prometheus::Histogram::BucketBoundaries;

 public:
  explicit Metrics(const platform::Clock& clock) : clock_(clock), progress_(clock) {}

  // `totals` returns the step totals of a job. Without it a scrape has no series of a job's time. Call before
  // any other.
  using Totals = std::function<StepTotals(const std::string& job_id)>;
  void SetTotals(Totals totals) { totals_ = std::move(totals); }

  // `last_seen` returns when a connected worker was last heard from. Without it a scrape has no ages of
  // workers. Call before any other.
  using LastSeen = std::function<absl::Time(const std::string& worker)>;
  void SetLastSeen(LastSeen last_seen) { last_seen_ = std::move(last_seen); }

  // Counts a step of a job. The steps of a short job may arrive after its end: they count until its series
  // are dropped, unless a newer job has its name.
  void Report(const std::string& job_id, const std::string& job_name, const v1::StepReport& report,
              absl::Time job_ended = absl::InfiniteFuture()) ABSL_LOCKS_EXCLUDED(mu_);
  // Call when a worker has reported on an attempt and `state` has the report.
  void Reported(const State& state, const AttemptKey& attempt) ABSL_LOCKS_EXCLUDED(mu_);
  void JobEnded(const v1::Job& job) ABSL_LOCKS_EXCLUDED(mu_);
  void RpcStarted(const std::string& method) ABSL_LOCKS_EXCLUDED(mu_);
  // `code` as in "OK", `method` as in "/tandem.v1.Jobs/Submit". For a stream, `took` is how long it was open.
  void RpcHandled(const std::string& method, const std::string& code, absl::Duration took)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Sets when the controller's own certificate expires. Not called without TLS.
  void CertificateEnds(absl::Time time) ABSL_LOCKS_EXCLUDED(mu_);
  // Updates the gauges of jobs, workers and the log of events, and what is known of live jobs.
  void Look(const State& state) ABSL_LOCKS_EXCLUDED(mu_);

  // How far the ranks of each job are, as of the last Look.
  const ProgressBoard& progress() const { return progress_; }

  std::vector<prometheus::MetricFamily> Collect() const override ABSL_LOCKS_EXCLUDED(mu_);

  prometheus::Histogram queue_wait_seconds{Bounds{0.1, 1, 10, 60, 300, 1800, 7200, 28800, 86400}};
  prometheus::Histogram commit_seconds{Bounds{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1}};
  prometheus::Counter refused_commits;  // because the disk was full

 private:
  // What is known of a job beside its steps.
  struct Known {
    v1::Job job;  // without its specs
    int64_t sequence_length = 0;
    std::map<int64_t, JobNeeds> needs;  // by attempt
    absl::Time ended = absl::InfiniteFuture();
  };

  void CollectOwn(std::vector<prometheus::MetricFamily>& out) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CollectRpcs(std::vector<prometheus::MetricFamily>& out) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CollectProgress(std::vector<prometheus::MetricFamily>& out) const;
  void CollectTraining(std::vector<prometheus::MetricFamily>& out) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CollectTimes(const std::vector<v1::Job>& jobs, std::vector<prometheus::MetricFamily>& out) const
      ABSL_LOCKS_EXCLUDED(mu_);
  void CollectCheckpoints(std::vector<prometheus::MetricFamily>& out) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Records what is known of the job, in place of an older job of its name.
  Known& Update(const v1::Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CollectNeeds(std::vector<prometheus::MetricFamily>& out) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  struct Training {
    std::string job_id;  // names are used again
    v1::StepReport last;
    double tokens = 0;
    std::map<int64_t, double> steps;  // by attempt
    double nonfinite_steps = 0;
    double spikes = 0;
    prometheus::Histogram seconds{Bounds{0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100}};
    absl::Time ended = absl::InfiniteFuture();
  };

  // Drops the series of jobs that ended long ago.
  void Prune() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const platform::Clock& clock_;
  ProgressBoard progress_;
  Totals totals_;
  LastSeen last_seen_;
  mutable absl::Mutex mu_;
  std::map<v1::JobState, int64_t> jobs_ ABSL_GUARDED_BY(mu_);
  // Queued jobs that need more than all registered workers have.
  int64_t beyond_capacity_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t connected_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t schedulable_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t away_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, absl::Time> seen_ ABSL_GUARDED_BY(mu_);  // by worker
  int64_t last_seq_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<absl::Time> certificate_ends_ ABSL_GUARDED_BY(mu_);
  mutable std::map<std::string, Training> training_ ABSL_GUARDED_BY(mu_);  // by job name
  mutable std::map<std::string, Known> known_ ABSL_GUARDED_BY(mu_);        // by job name
  std::map<std::string, int64_t> started_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<std::string, std::string>, int64_t> handled_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, prometheus::Histogram> took_ ABSL_GUARDED_BY(mu_);  // by method
};

}  // namespace tandem::controller
